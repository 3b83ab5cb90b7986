// cpprb's tree alone, in C++ and without Python: one batch of draws and one of updates, the best of 300.
//
//     pip download --no-deps --no-binary cpprb cpprb==11.0.0 && tar xzf cpprb-11.0.0.tar.gz
//     g++ -O3 -march=native -std=c++17 -I cpprb-11.0.0/cpprb benchmarks/cpprb_tree.cpp -o cpprb_tree && ./cpprb_tree
//
// Beside it stands the column 'tree alone' of `safereplay bench --only tree`: there the random numbers are drawn within the
// time, here they are not.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <random>
#include <vector>

#include "SegmentTree.hh"

using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

int main() {
  std::mt19937_64 random{0};
  std::uniform_real_distribution<float> uniform;
  std::printf("%10s %6s %12s %12s\n", "entries", "batch", "draw, us", "update, us");
  for (std::size_t entries : {100000ul, 1000000ul}) {
    ymd::SegmentTree<float> sums{ymd::PowerOf2(entries), [](auto a, auto b) { return a + b; }};
    for (std::size_t i = 0; i < entries; ++i) sums.set(i, uniform(random) + 0.01f);
    for (std::size_t batch : {32ul, 256ul, 1024ul}) {
      double best_draw = 1e9, best_update = 1e9;
      std::size_t seen = 0;
      std::vector<float> u(batch), weight(batch);
      std::vector<std::size_t> found(batch), where(batch);
      for (int round = 0; round < 300; ++round) {
        for (std::size_t k = 0; k < batch; ++k) {
          u[k] = uniform(random);
          weight[k] = uniform(random);
          where[k] = random() % entries;
        }
        const auto began = Clock::now();
        const auto part = sums.reduce(0, entries) / batch;
        for (std::size_t k = 0; k < batch; ++k) {
          const auto mass = (u[k] + k) * part;
          found[k] = sums.largest_region_index([=](auto sum) { return sum <= mass; }, entries);
        }
        const auto drawn = Clock::now();
        for (std::size_t k = 0; k < batch; ++k) sums.set(where[k], weight[k]);
        const auto updated = Clock::now();
        for (auto i : found) seen += i;
        best_draw = std::min(best_draw, microseconds(began, drawn));
        best_update = std::min(best_update, microseconds(drawn, updated));
      }
      std::printf("%10zu %6zu %12.1f %12.1f%s\n", entries, batch, best_draw, best_update, seen ? "" : " nothing drawn");
    }
  }
}
