/**
 * The seven lessons: their texts, and the links that set the page. Words between * are emphasised.
 *
 * The numbers are those of the boards for these links.
 */

/** @typedef {{title: string, link: string, text: string[], task: string, show: string, then: string}} Lesson
 *  link: sets both boards; task: something to try; show: a link that does it; then: the result */

/** @type {Lesson[]} */
export const LESSONS = [
  {
    title: "Why does Q-learning walk the edge?",
    link: "world=cliff&left=q&right=replay,v:0.5,beta:5,mixing:matched",
    text: [
      "Both agents try to get from S to the flag, which pays +10. Every step costs 1, and a fall off the cliff costs 12. The ground is slippery: one step in ten goes in a random direction.",
      "Q-learning (left) learns how good each move is *on average*. On average the edge is best: 7 steps instead of 9, and each step along it has a risk of only 2.5 %. Together that is a lot: 11.9 % of its walks end in a fall. Its mean return is 1.18.",
      "The agent on the right goes round. It falls in 3.52 % of its walks, and its mean is 0.695. That is worse on average, but you would prefer it if it were *your* robot. A coloured corner marks each cell where the two policies differ.",
    ],
    task: "Make the ground more slippery with the slip slider. When does Q-learning leave the edge by itself?",
    show: "world=cliff&slip=0.23&left=q&right=replay,v:0.5,beta:5,mixing:matched",
    then: "Only at a slip of 23 %. It compares only averages, in which later rewards count a little less (that is γ). Even now it falls in 10.9 % of its walks.",
  },
  {
    title: "What does replay change?",
    link: "world=volatile&left=q&right=replay,v:0.5,beta:5,mixing:matched",
    text: [
      "A new world: the flag pays +150. The short way has three moves marked with a bolt. Each of them is a gamble: +100 with probability 60 %, −100 with probability 40 %. Q-learning takes all three. Its mean is 210, and in 78.4 % of its walks at least one gamble is lost.",
      "The right agent learns in the same way, but between its steps it *replays*: it learns again from steps in its memory. It replays moves whose reward *varies* most, and of such a move the *worst* rewards.",
      "So each gamble looks worse than it is. It is lost in 40 % of cases; in what the agent learns from, in 55 %. A move that is worth +20 on average looks like −10. Nothing else is replayed here, since nothing else varies.",
      "The agent now walks round all gambles: mean 145, and never a loss. The learning rule is the same; only the choice of replayed steps differs.",
    ],
    task: "Press *Show me*, then *Run* in the panel Learn. Replayed moves flash: which ones are they?",
    show: "world=volatile&left=q&right=replay,v:0.5,beta:5,mixing:literal",
    then: "They are the three gambles, and nearly always their losses, since nothing else varies here. The right learner is now *literal*: it replays at every second update. Lesson 6 shows what that changes.",
  },
  {
    title: "One dial from cautious to bold",
    link: "world=volatile&left=replay,v:0.5,beta:5,mixing:matched&right=replay,v:0.5,beta:-1,mixing:matched",
    text: [
      "Replay has two dials. *v* is how much is replayed: 0 is plain Q-learning, and near 1 most updates of a gamble are replays. *β* is which rewards are preferred: the worst if it is above 0, the best if it is below 0, and none at 0.",
      "On the left β = 5: cautious, as before. On the right β = −1: this agent mostly replays the gambles it won. They look so good that it steps back and forth over one of them for ever and never reaches the flag. That is too bold.",
      "More caution is not always better either. On the cliff v = 0.4 reduces falls from 11.9 % to 3.52 %. v = 0.9 reduces them only to 3.02 %, while the mean falls from 0.695 to 0.582.",
    ],
    task: "Drag the right pane's β from −1 up to 0, and then further.",
    show: "world=volatile&left=replay,v:0.5,beta:5,mixing:matched&right=replay,v:0.5,beta:0,mixing:matched",
    then: "At β = 0 the right agent is as risky as Q-learning: 78.4 %. Just above 0, at β = 0.05, it already goes round.",
  },
  {
    title: "Other ways to be careful",
    link: "world=cliff&left=mihatsch,kappa:0.9&right=gaskett,beta:0.2",
    text: [
      "Other methods change the learning rule. *Mihatsch and Neuneier* (left) give bad surprises more weight than good ones; κ is how much more. *Gaskett* (right) assumes that the next move is, with weight β, the worst one instead of the best.",
      "On the cliff both can work. Gaskett's agent with β = 0.2 falls in 3.08 % of its walks. But look at the left one: with κ = 0.9 every step looks so bad that ending the walk at once looks better. It jumps: 97.7 % of its walks end in a fall.",
      "From κ = 0.42 to 0.86 it goes round and is safe; from 0.89 on it jumps. Gaskett's agent jumps from β = 0.37 on. Replay only lowers the value of moves whose reward varies: on this cliff it stays on the safe path for any v from 0.4 to 0.99.",
    ],
    task: "Now try both on the gambles of lesson 2, with strong settings.",
    show: "world=volatile&left=mihatsch,kappa:0.9&right=gaskett,beta:0.9",
    then: "κ = 0.9 is safe here. Gaskett's agent still gambles, 78.4 %: it assumes a bad next *move*, but not a bad *reward*.",
  },
  {
    title: "What does safety cost?",
    link: "world=cliff&left=q&right=replay,v:0.5,beta:5,mixing:matched&limit=0.05",
    text: [
      "How much replay do you need? Set a limit, such as falls in at most 5 % of all walks. Tune, below, finds the *gentlest* replay that keeps it: the smallest v and β.",
      "It finds a mean of 0.695 with falls in 3.52 %, where Q-learning had 1.18. So safety costs 0.48. Would another method be cheaper? The page also computes the best of *all* policies under your limit: a mean of 0.78. So 0.395 is the price of safety itself, and only 0.085 is the additional cost of replay.",
      "In the picture, the dotted line is the best of all policies, and the dots are the limits of replay. Press a dot to set the right pane to its v and β.",
    ],
    task: "Press *Find the gentlest replay*. Then set the limit to 1 %.",
    show: "world=cliff&left=q&right=replay,v:0.5,beta:5,mixing:matched&limit=0.01",
    then: "The limit is 1 % now; press the button again. No policy can keep it: S is beside the cliff, so the first step may already slip. The safest policy of all still falls in 2.78 % of its walks.",
  },
  {
    title: "Where the paper's formula and the algorithm differ",
    link: "world=volatile&left=replay,v:0.3,beta:5,mixing:matched&right=replay,v:0.3,beta:5,mixing:literal",
    text: [
      "Same v, same β, and two different agents! The paper has an algorithm and a formula for its limit. The left pane shows the formula (*matched*), the right one the true limit of the algorithm as written (*literal*). With v = 0.3 the formula still gambles, 78.4 %. The algorithm goes round, 0 %.",
      "Why? The value of a move depends on how many of its updates are replays. 30 % of the algorithm's updates are replays, all of the three gambles. The other 70 % are real steps, and an agent that goes round tries a given gamble in about one of 2,500 of those. So 99.7 % of what it learns about the first gamble is replay, and nearly always a loss.",
      "The formula assumes that every real step visits every move, which makes that share 12.5 %. It lacks d(s,a), the share of real steps that take move a in state s. *Matched* mixing changes the algorithm instead: it replays a move right after it was tried. Then the formula is exact.",
      "With d, the limit depends on what is visited, and what is visited depends on what was learned. So the algorithm can have several limits.",
    ],
    task: "Go to the cliff with γ = 0.9 and ε = 0.05, and run nine seeds of the algorithm at once.",
    show: "world=cliff&gamma=0.9&left=replay,v:0.5,beta:5,mixing:matched&right=replay,v:0.5,beta:5,mixing:literal&epsilon=0.05&seeds=9",
    then: "Press Run in the panel Learn. After 200,000 iterations five of the nine seeds are safe, and four refuse to move: the same learner in the same world, only the seeds differ.",
  },
  {
    title: "Name the risk, get the replay",
    link: "world=cliff&left=q&right=design,limit:0.035",
    text: [
      "So far you set v and β, and the risk followed. It also works the other way round. Set a limit on P(unsafe): at most 3.5 % of all walks end in a fall. The right agent has a *designed* replay. It is computed from the model of the world, before anything is learned.",
      "First, of all policies with one action per cell, the best one under the limit is found: falls in 3.19 % of walks, mean 0.653. Then the least replay that makes this policy the limit of learning: 7 moves with v = 0.281. Red bars mark these moves. Of each one only its worst outcome is replayed. Point at a cell with a bar: ρ is the share of the move's updates that are replays.",
      "The limit can be from 2.78 %, the least risk of any policy, to 11.9 %, that of Q-learning. Below 2.78 % there is no replay to find, and the page says so.",
    ],
    task: "In the world of lesson 2, accept a loss in at most half of all walks.",
    show: "world=volatile&left=replay,v:0.5,beta:5,mixing:matched&right=design,limit:0.5",
    then: "The right agent takes exactly one of the three gambles: a loss in 40 % of walks, mean 166. Only the 2 other gambles are replayed. Shaped replay, on the left, treats all three alike, so it takes all of them or none.",
  },
];
