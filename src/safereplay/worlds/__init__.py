"""Worlds that differ in where the danger comes from, one file each.

The table has those of :mod:`safereplay.grids` too. Returns are undiscounted and from the origin; P is that of anything
unsafe in an episode. *Best*: the highest mean of any policy (∞: some loop gains for ever). Q*: that of the best policy
for the world's γ. *Safest*: of the policies with the least P, the one with the highest mean. *Replay*: the limit of the
paper's scheme, β = 5 and v = 0.5 with matched mixing.

    world          danger        states       best         Q*        P     safest        P     replay        P
    volatile       reward            20          ∞    210.000    0.784    145.000    0.000    145.000    0.000
    cliff          transition        24      1.175      1.175    0.119     -1.391    0.028      0.695    0.035
    bridge         transition        40      7.818      7.818    0.178      7.151    0.000      7.288    0.004
    lottery        reward            28     20.400     20.400    0.344     10.000    0.000     10.000    0.000
    ledge          transition        46      1.482      1.482    0.226     -4.944    0.000      1.447    0.025
    frozen_lake    transition        16      0.824      0.780    0.220      0.824    0.176      0.780    0.220
    lake           transition        64      1.000      0.894    0.106      1.000    0.000      0.894    0.106
    cliff_walking  exploration       48    -13.000    -13.000    0.000    -13.000    0.000    -13.000    0.000
    taxi           none             500     11.000     11.000    0.000     11.000    0.000     11.000    0.000
    market         reward             9     19.200     19.200    0.832      8.000    0.000     14.000    0.337
    two_gambles    reward             3      5.800      5.800    0.100      0.400    0.000      0.400    0.000
    river          transition        28      2.552      2.552    0.147     -2.396    0.001      2.009    0.136
    late_cliff     delayed           28      1.056      1.056    0.119     -1.419    0.028      1.056    0.119
    insurance      rare              11     -1.956     -1.956    0.049    -10.000    0.000    -10.000    0.000
    fog            none              18      6.000      6.000    0.000      6.000    0.000      4.000    0.000
    flood          caution           18      4.435      4.435    0.185      4.435    0.185      2.053    0.265
    windfall       caution            3      4.500      4.500    0.100      2.000    0.000      2.500    0.100

The danger is in *rewards* where transitions are certain, in *transitions* where moves slip, *delayed* where the slip
pays as a step does and the harm comes later, *rare* where it comes once in hundreds, in *exploration* where only a
learner meets it; *none* are controls. In the two of *caution*, to shun what varies does harm: the paper's scheme is
worse there than Q-learning.
"""
