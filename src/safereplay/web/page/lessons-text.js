/**
 * The six lessons: what each says, and the link that sets the page for it. Words between * are stressed.
 *
 * The numbers are those that the boards show for these links.
 */

/** @typedef {{title: string, link: string, text: string[], task: string, show: string, then: string}} Lesson
 *  link: sets both boards; task: one thing to try; show: a link that does it for the reader; then: what is to be seen */

/** @type {Lesson[]} */
export const LESSONS = [
  {
    title: "Why does Q-learning walk the edge?",
    link: "world=cliff&left=q&right=replay,v:0.5,beta:5,mixing:matched",
    text: [
      "Both agents want to get from S to the flag, which pays +10. Every step costs 1, and a fall off the cliff costs 12. The ground is slippery: one step in ten goes in a random direction.",
      "Q-learning (left) learns how good each move is *on average*. On average the edge is best: 7 steps instead of 9, and at each step along it a fall has a chance of only 2.5 %. It adds up, though: 11.9 % of its walks end in a fall. Its mean return is 1.18.",
      "The agent on the right goes round. It falls in 3.52 % of its walks, and its mean is 0.695. That is worse on average, and still what you would want if it were *your* robot. A coloured corner marks each cell in which the two disagree.",
    ],
    task: "Make the ground more slippery with the slip slider. When does Q-learning leave the edge by itself?",
    show: "world=cliff&slip=0.23&left=q&right=replay,v:0.5,beta:5,mixing:matched",
    then: "Only at a slip of 23 %. It compares averages, in which later rewards count a little less (that is γ), and asks nothing else: even now it falls in 10.9 % of its walks.",
  },
  {
    title: "What does replay change?",
    link: "world=volatile&left=q&right=replay,v:0.5,beta:5,mixing:matched",
    text: [
      "A new world: the flag pays +150. The short way crosses three moves marked with a bolt, and each of them is a gamble: +100 with chance 60 %, −100 with chance 40 %. Q-learning takes all three. Its mean is 210, and in 78.4 % of its walks at least one gamble is lost.",
      "The right agent learns in the same way, but between its steps it *replays*: it lives through something that it remembers once more. And it chooses what. It prefers moves whose reward *varies* most, and of such a move it prefers the *worst* rewards.",
      "So each gamble seems worse than it is. It is lost in 40 % of cases; in what the agent learns from, in 55 %. A move that is worth +20 on average looks like −10. Nothing else is replayed here, since nothing else varies.",
      "The agent now walks round all gambles: mean 145, and never a loss. The rule of learning is the same; only the choice of memories is not.",
    ],
    task: "Press *Show me*, then *Run* in the panel Learn. Replayed moves flash: which ones are they?",
    show: "world=volatile&left=q&right=replay,v:0.5,beta:5,mixing:literal",
    then: "They are the three gambles, and nearly always their losses, since nothing else varies here. The right learner is now *literal*: it replays at every second update. What that changes is lesson 6.",
  },
  {
    title: "One dial from cautious to bold",
    link: "world=volatile&left=replay,v:0.5,beta:5,mixing:matched&right=replay,v:0.5,beta:-1,mixing:matched",
    text: [
      "Replay has two dials. *v* says how much is replayed: 0 is plain Q-learning, and the nearer to 1, the more of what a gamble teaches comes from memory. *β* says which rewards are preferred: the worst where it is above 0, the best where it is below, and none at 0.",
      "On the left β = 5: cautious, as before. On the right β = −1: this agent mostly remembers the gambles it won. It is so fond of them that it steps back and forth over one of them for ever and never comes to the flag. Too bold is no good.",
      "More is not always better on the other side either. On the cliff v = 0.4 brings falls down from 11.9 % to 3.52 %, and v = 0.9 only to 3.02 %, while the mean goes on sinking, from 0.695 to 0.582.",
    ],
    task: "Drag the right pane's β from −1 up to 0, and then on.",
    show: "world=volatile&left=replay,v:0.5,beta:5,mixing:matched&right=replay,v:0.5,beta:0,mixing:matched",
    then: "At β = 0 the right agent is as risky as Q-learning: 78.4 %. Just above 0, at β = 0.05, it already goes round.",
  },
  {
    title: "Other ways to be careful",
    link: "world=cliff&left=mihatsch,kappa:0.9&right=gaskett,beta:0.2",
    text: [
      "Others change the rule of learning itself. *Mihatsch and Neuneier* (left) let bad surprises count for more than good ones; κ says how much more. *Gaskett* (right) pretends that the next move is not always the best one, but to a share of β the worst.",
      "On the cliff both can work. Gaskett's agent with β = 0.2 falls in 3.08 % of its walks. But look at the left one: with κ = 0.9 every step seems so bad that it is better to get it over with. It jumps: 97.7 % of its walks end in a fall.",
      "From κ = 0.42 to 0.86 it goes round and is safe; from 0.89 on it jumps. Gaskett's agent jumps from β = 0.37 on. Replay only dampens moves whose reward varies: on this cliff it stays on the safe path for any v from 0.4 to 0.99.",
    ],
    task: "Now give both of them the gambles of step 2, with strong settings.",
    show: "world=volatile&left=mihatsch,kappa:0.9&right=gaskett,beta:0.9",
    then: "κ = 0.9 is safe here. Gaskett's agent still gambles, 78.4 %: it fears the next *move*, never what a move *pays*.",
  },
  {
    title: "What does safety cost?",
    link: "world=cliff&left=q&right=replay,v:0.5,beta:5,mixing:matched&limit=0.05",
    text: [
      "How much replay do you need? Turn the question round: say what you accept, such as falls in at most 5 % of all walks, and let the page look for the *gentlest* replay that keeps to it. That is what Tune does, below.",
      "It finds a mean of 0.695 with falls in 3.52 %, where Q-learning had 1.18. So safety costs 0.48. But was replay clumsy, or does safety cost that much? Beside it the page works out the best that *any* policy could do under your limit: a mean of 0.78. So 0.395 is the price of safety itself, and only 0.085 is replay's own.",
      "In the picture, the dotted line is that best, and the dots are what replay can reach. Each dot is a button: press one, and the right pane takes its v and β.",
    ],
    task: "Press *Find the gentlest replay*. Then ask for 1 %.",
    show: "world=cliff&left=q&right=replay,v:0.5,beta:5,mixing:matched&limit=0.01",
    then: "The limit is 1 % now; press the button again. Nobody can keep to it: S lies beside the cliff, so that already the first step may slip. The most careful policy of all still falls in 2.78 % of its walks.",
  },
  {
    title: "Where the paper's formula and the algorithm differ",
    link: "world=volatile&left=replay,v:0.3,beta:5,mixing:matched&right=replay,v:0.3,beta:5,mixing:literal",
    text: [
      "Same v, same β, and two different agents! The paper has an algorithm and a formula for where it ends. The left pane shows the formula (*matched*), the right one what the algorithm, taken by its word, really ends at (*literal*). With v = 0.3 the formula still gambles, 78.4 %. The algorithm goes round, 0 %.",
      "Why? What a move looks like depends on how many of its updates are replays. The algorithm spends 30 % of its time on replays, all on the three gambles. The other 70 % are real steps, and an agent that goes round tries a given gamble in about one of 2,500 of those. So 99.7 % of what it learns about the first gamble is replay, and nearly always a loss.",
      "The formula counts as if every real step visited every move, which makes that share 12.5 %. The missing piece is d(s,a), the share of real steps that take move a in state s. *Matched* mixing repairs it: it replays a move right after it was tried, in proportion. Then the formula is exact.",
      "With d there is a twist: what is visited depends on what was learned, and the other way round. So a habit can confirm itself, and the algorithm may have several ends.",
    ],
    task: "Go to the cliff with γ = 0.9 and ε = 0.05, and run nine seeds of the algorithm at once.",
    show: "world=cliff&gamma=0.9&left=replay,v:0.5,beta:5,mixing:matched&right=replay,v:0.5,beta:5,mixing:literal&epsilon=0.05&seeds=9",
    then: "Press Run in the panel Learn. After 200,000 iterations five of the nine seeds are safe, and four refuse to move: the same learner in the same world, with other luck.",
  },
];
