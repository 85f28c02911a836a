// One pass of a network over rows of many sequences.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "aligned.h"
#include "attention.h"
#include "columns.h"
#include "network.h"
#include "normed_rows.h"
#include "threads.h"

namespace forerun {

// What to score and where the results go.
struct Batch {
  std::vector<KVSequence*> sequences;  // each once
  std::vector<int> sequence_of;        // of each row: index in `sequences`
  std::vector<int> tokens;
  std::vector<int> parents;            // an earlier row of the pass, or -1
  std::vector<int> positions;
  std::vector<int> asked;              // rows whose logits are wanted
  float* logits = nullptr;                       // [asked][vocab], or what the head has
  std::vector<int> layers;             // whose hidden states are wanted; the last enters the norm
  std::vector<float*> hidden;          // each [rows][width]
  const Product* head = nullptr;       // null: the network's
  std::size_t featured = 0;            // of the rows of a head: so many, the first, have features
  const float* features = nullptr;     // [featured][inputs of the product with them]
  const float* given = nullptr;        // [the other rows][width]: as what the stream begins
  std::size_t until = 0;               // of the layers only so many run, and no row is kept; 0: all
  std::function<bool()> is_over;       // asked after each layer, by the calling thread; or empty
};

class Pass {
 public:
  // Throws std::invalid_argument if the weights do not fit the shape.
  Pass(Network network, KVType type, std::size_t threads);

  const Network& network() const { return network_; }
  std::size_t threads() const { return pool_.threads(); }
  KVShape kv_shape() const;

  // Turns of all positions from 0 on: [positions][pairs].
  void set_turns(const float* cosines, const float* sines, std::size_t positions);
  std::size_t turned() const { return turned_; }  // how many positions

  // Scores the rows; their keys and values wait in the sequences. One thread may call at a time.
  // False if it was over early: then no row waits and the results mean nothing.
  // Throws std::invalid_argument if a number in the batch names what is not there.
  bool score(const Batch& batch);

 private:
  void check(const Batch& batch) const;
  std::size_t end(const Batch& batch) const;
  void begin(const Batch& batch);
  void work(const Batch& batch, std::size_t thread);
  Results to(Columns& columns, std::size_t thread, const float* factors = nullptr) const;
  void enter(const Batch& batch, std::size_t thread);
  void enter_known(const Batch& batch, std::size_t thread);
  void join(const Batch& batch, std::size_t thread);
  bool joins(std::size_t layer) const { return layer == 0 && network_.entry != nullptr; }
  void add_delta(std::size_t thread);
  void normalise(std::size_t thread, const std::vector<float>& weight);
  void put_normed(std::size_t thread, std::size_t row, const std::vector<float>& weight,
                  NormedRows& to, std::size_t to_row);
  void attend(const Batch& batch, std::size_t layer, std::size_t thread);
  void feed_forward(const Batch& batch, std::size_t layer, std::size_t thread);
  void gate(const LayerWeights& weights, std::size_t thread);
  void finish(const Batch& batch, std::size_t thread);
  const Product& head(const Batch& batch) const;
  void keep_hidden(const Batch& batch, std::size_t layer, std::size_t thread);
  void split_heads(const Batch& batch, std::size_t layer, std::size_t thread);
  void finish_head(const Batch& batch, const LayerWeights& weights, std::size_t head,
                   std::size_t row, float* values) const;
  void keep_key(const Batch& batch, std::size_t layer, std::size_t kv_head, std::size_t row);
  void keep_value(const Batch& batch, std::size_t layer, std::size_t kv_head, std::size_t row);
  std::pair<KVPage*, std::size_t> pending(const Batch& batch, std::size_t row) const;
  void turn(float* head, const float* cosines, const float* sines) const;

  Network network_;
  KVType type_;
  ThreadPool pool_;  // for when others use the shared threads
  Barrier barrier_;
  Attention attention_;
  std::vector<Group> groups_;
  std::vector<std::size_t> local_;  // of each row: its place among its sequence's rows
  std::vector<float> cosines_, sines_;
  std::size_t turned_ = 0;
  std::size_t rows_ = 0;
  bool is_over_ = false;
  bool keeps_floats_;
  Columns stream_, delta_;  // the residual stream, and what a block adds to it
  Columns q_, k_, v_, gate_, up_;
  NormedRows normed_, last_;
  Activations heads_, inner_;
  Activations features_, joined_;  // of a head: what its products read instead of normed rows
  std::vector<AlignedFloats> joining_;  // a thread's own row of the latter
};

}  // namespace forerun
