#include "pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "multiply.h"
#include "shared_threads.h"

namespace forerun {
namespace {

std::size_t index(int value) { return static_cast<std::size_t>(value); }

void demand_below(const std::vector<int>& values, std::size_t limit) {
  for (const int value : values) {
    if (value < 0 || index(value) >= limit) throw std::invalid_argument("a number out of range");
  }
}

}  // namespace

Pass::Pass(Network network, KVType type, std::size_t threads)
    : network_(std::move(network)),
      type_(type),
      pool_(threads),
      barrier_(threads),
      attention_(network_.shape, type, threads) {
  if (threads == 0) throw std::invalid_argument("no threads");
  network_.check();
  keeps_floats_ = network_.has_floats();
}

KVShape Pass::kv_shape() const {
  const Shape& shape = network_.shape;
  return {network_.layers.size(), shape.kv_heads, shape.head_width(), type_};
}

bool Pass::score(const Batch& batch) {
  check(batch);
  try {
    begin(batch);
    const auto in_thread = [&](std::size_t thread) { work(batch, thread); };
    if (!run_shared(threads(), in_thread)) pool_.run(in_thread);
  } catch (...) {
    for (KVSequence* sequence : batch.sequences) sequence->drop();
    throw;
  }
  // Rows that not all layers have seen hold no keys to keep.
  if (!is_over_ && batch.until == 0) return true;
  for (KVSequence* sequence : batch.sequences) sequence->drop();
  return !is_over_;
}

// The layer before which the stream enters the final norm.
std::size_t Pass::end(const Batch& batch) const {
  return batch.until != 0 ? batch.until : network_.layers.size();
}

void Pass::set_turns(const float* cosines, const float* sines, std::size_t positions) {
  const std::size_t size = positions * network_.shape.pairs;
  cosines_.assign(cosines, cosines + size);
  sines_.assign(sines, sines + size);
  turned_ = positions;
}

void Pass::check(const Batch& batch) const {
  const std::size_t rows = batch.tokens.size();
  if (batch.sequence_of.size() != rows || batch.parents.size() != rows ||
      batch.positions.size() != rows || batch.hidden.size() != batch.layers.size()) {
    throw std::invalid_argument("lists of different lengths");
  }
  demand_below(batch.tokens, network_.shape.vocab);
  demand_below(batch.positions, turned_);
  demand_below(batch.sequence_of, batch.sequences.size());
  demand_below(batch.asked, rows);
  if (end(batch) > network_.layers.size()) throw std::invalid_argument("more layers than there are");
  demand_below(batch.layers, end(batch) + 1);
  if (batch.featured > (network_.entry != nullptr ? rows : 0) ||
      (batch.featured > 0 && batch.features == nullptr) ||
      (network_.entry != nullptr && batch.featured < rows && batch.given == nullptr)) {
    throw std::invalid_argument("rows that know nothing, or more than they can");
  }
  if (head(batch).inputs() != network_.shape.width) {
    throw std::invalid_argument("a head of another width");
  }
  const KVShape shape = kv_shape();
  for (const KVSequence* sequence : batch.sequences) {
    if (sequence == nullptr) throw std::invalid_argument("no sequence");
    if (!(sequence->shape() == shape)) throw std::invalid_argument("another network's sequence");
  }
}

// Groups the rows by sequence, in which their parents get numbers of their own, and makes room.
void Pass::begin(const Batch& batch) {
  rows_ = batch.tokens.size();
  is_over_ = false;
  groups_.assign(batch.sequences.size(), {});
  local_.resize(rows_);
  std::vector<std::vector<int>> parents(groups_.size()), names(groups_.size());
  for (std::size_t row = 0; row < rows_; ++row) {
    const std::size_t of = index(batch.sequence_of[row]);
    const int parent = batch.parents[row];
    if (parent < -1 || parent >= static_cast<int>(row) ||
        (parent >= 0 && index(batch.sequence_of[index(parent)]) != of)) {
      throw std::invalid_argument("a row's parent is no earlier row of its sequence");
    }
    local_[row] = groups_[of].rows.size();
    parents[of].push_back(parent < 0 ? -1 : static_cast<int>(local_[index(parent)]));
    groups_[of].rows.push_back(row);
    names[of].push_back(static_cast<int>(row));
  }
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].kv = batch.sequences[i];
    groups_[i].kv->begin(parents[i], std::move(names[i]));
  }
  const Shape& shape = network_.shape;
  attention_.prepare(groups_, rows_);
  const std::size_t count = threads();
  for (Columns* columns : {&stream_, &delta_}) columns->resize(rows_, shape.width, count);
  q_.resize(rows_, shape.query_width(), count);
  for (Columns* columns : {&k_, &v_}) columns->resize(rows_, shape.kv_width(), count);
  for (Columns* columns : {&gate_, &up_}) columns->resize(rows_, shape.inner, count);
  normed_.resize(rows_, shape.width, count, keeps_floats_);
  heads_.resize(rows_, shape.query_width(), keeps_floats_ || !attention_.quantises());
  inner_.resize(rows_, shape.inner, keeps_floats_);
  last_.resize(batch.asked.size(), shape.width, count, head(batch).has_floats());
  if (network_.entry == nullptr) return;
  features_.resize(batch.featured, network_.entry->features.inputs(), keeps_floats_);
  joined_.resize(rows_, 2 * shape.width, keeps_floats_);
  joining_.resize(count);
  for (AlignedFloats& row : joining_) make_room(row, 2 * shape.width);
}

void Pass::work(const Batch& batch, std::size_t thread) {
  attention_.share_out(groups_, thread);
  enter(batch, thread);
  for (std::size_t layer = 0; layer < end(batch); ++layer) {
    keep_hidden(batch, layer, thread);
    attend(batch, layer, thread);
    feed_forward(batch, layer, thread);
    if (is_over_) return;
  }
  finish(batch, thread);
}

// Makes the thread's columns of the stream of the tokens.
void Pass::enter(const Batch& batch, std::size_t thread) {
  if (network_.entry != nullptr) return enter_known(batch, thread);
  const auto [first, last] = stream_.of(thread);
  for (std::size_t row = 0; row < rows_; ++row) {
    dequantise(network_.ends->embedding->first(), index(batch.tokens[row]), first, last,
               stream_.row(thread, row));
  }
}

// Adds what a block has made to the thread's columns of the stream.
void Pass::add_delta(std::size_t thread) {
  row_math().add(delta_.row(thread, 0), rows_ * delta_.stride(thread), stream_.row(thread, 0));
}

// Puts the thread's columns of the stream where products are made with them.
void Pass::normalise(std::size_t thread, const std::vector<float>& weight) {
  for (std::size_t row = 0; row < rows_; ++row) put_normed(thread, row, weight, normed_, row);
}

void Pass::put_normed(std::size_t thread, std::size_t row, const std::vector<float>& weight,
                      NormedRows& to, std::size_t to_row) {
  to.put(thread, to_row, stream_.row(thread, row), weight.data() + stream_.of(thread).first);
}

// Where a product writes the thread's columns.
Results Pass::to(Columns& columns, std::size_t thread, const float* factors) const {
  return {columns.row(thread, 0), columns.stride(thread), factors};
}

void Pass::attend(const Batch& batch, std::size_t layer, std::size_t thread) {
  const LayerWeights& weights = *network_.layers[layer];
  const bool is_joined = joins(layer);
  if (is_joined) {
    join(batch, thread);
  } else {
    normalise(thread, weights.attention_norm);
  }
  barrier_.wait();
  const float* const factors =
      is_joined ? nullptr : normed_.factors(thread, network_.shape.epsilon);
  const Results qkv[] = {to(q_, thread, factors), to(k_, thread, factors), to(v_, thread, factors)};
  weights.qkv.run(is_joined ? joined_ : normed_.rows(), thread, threads(), qkv,
                  weights.output.first_panel(thread, threads()));
  barrier_.wait();
  split_heads(batch, layer, thread);
  barrier_.wait();
  attention_.run(layer, thread, heads_);
  barrier_.wait();
  if (!attention_.quantises()) {
    const Share share(rows_, thread, threads());
    for (std::size_t row = share.first; row < share.last; ++row) heads_.quantise(row);
    barrier_.wait();
  }
  const Results delta = to(delta_, thread);
  weights.output.run(heads_, thread, threads(), &delta,
                     weights.gate_up.first_panel(thread, threads()));
  add_delta(thread);
}

void Pass::feed_forward(const Batch& batch, std::size_t layer, std::size_t thread) {
  const LayerWeights& weights = *network_.layers[layer];
  normalise(thread, weights.inner_norm);
  barrier_.wait();
  gate(weights, thread);
  if (thread == 0 && batch.is_over && batch.is_over()) is_over_ = true;
  barrier_.wait();
  const bool is_last = layer + 1 == end(batch);
  const Product& next = is_last ? head(batch) : network_.layers[layer + 1]->qkv;
  const Results delta = to(delta_, thread);
  weights.down.run(inner_, thread, threads(), &delta, next.first_panel(thread, threads()));
  add_delta(thread);
}

// The thread's columns of gate and up, and of what becomes of them.
void Pass::gate(const LayerWeights& weights, std::size_t thread) {
  const auto [first, last] = gate_.of(thread);
  const float* const factors = normed_.factors(thread, network_.shape.epsilon);
  const Results gate_up[] = {to(gate_, thread, factors), to(up_, thread, factors)};
  weights.gate_up.run(normed_.rows(), thread, threads(), gate_up,
                      weights.down.first_panel(thread, threads()));
  for (std::size_t row = 0; row < rows_ && first < last; ++row) {
    float* const gate = gate_.row(thread, row);
    row_math().silu_gate(gate, up_.row(thread, row), last - first, gate);
    inner_.put(row, first, last - first, gate);
  }
}

void Pass::finish(const Batch& batch, std::size_t thread) {
  keep_hidden(batch, end(batch), thread);
  for (std::size_t i = 0; i < batch.asked.size(); ++i) {
    put_normed(thread, index(batch.asked[i]), network_.ends->norm, last_, i);
  }
  if (batch.asked.empty()) return;
  barrier_.wait();
  const Product& head = this->head(batch);
  const std::size_t vocab = head.outputs(), first = columns_of(vocab, thread, threads()).first;
  const Results logits{batch.logits + first, vocab,
                       last_.factors(thread, network_.shape.epsilon)};
  head.run(last_.rows(), thread, threads(), &logits, nullptr);
}

const Product& Pass::head(const Batch& batch) const {
  return batch.head != nullptr ? *batch.head : network_.ends->head();
}

// Copies the thread's columns of the stream, if hidden states before the layer are wanted.
void Pass::keep_hidden(const Batch& batch, std::size_t layer, std::size_t thread) {
  for (std::size_t i = 0; i < batch.layers.size(); ++i) {
    if (index(batch.layers[i]) != layer) continue;
    for (std::size_t row = 0; row < rows_; ++row) {
      float* const hidden = batch.hidden[i] + row * network_.shape.width;
      std::copy_n(stream_.row(thread, row), stream_.stride(thread),
                  hidden + stream_.of(thread).first);
    }
  }
}

// Makes the queries that the thread will attend with, and its part of the pending keys and values.
void Pass::split_heads(const Batch& batch, std::size_t layer, std::size_t thread) {
  const std::size_t size = network_.shape.head_dim;
  attention_.take_queries(thread, [&](std::size_t row, std::size_t head, float* query) {
    q_.copy(row, head * size, size, query);
    finish_head(batch, *network_.layers[layer], head, row, query);
  });
  // Rows last: what one thread writes then lies apart from what others write.
  const Share share(2 * network_.shape.kv_heads * rows_, thread, threads());
  for (std::size_t i = share.first; i < share.last; ++i) {
    const std::size_t half = i / rows_, row = i % rows_;
    if (half % 2 == 0) {
      keep_key(batch, layer, half / 2, row);
    } else {
      keep_value(batch, layer, half / 2, row);
    }
  }
}

// Gives a head of a row's queries or, behind these, keys its bias, norm and turn.
void Pass::finish_head(const Batch& batch, const LayerWeights& weights, std::size_t head,
                       std::size_t row, float* values) const {
  const Shape& shape = network_.shape;
  const std::size_t size = shape.head_dim;
  if (!weights.qkv_bias.empty()) row_math().add(&weights.qkv_bias[head * size], size, values);
  const std::vector<float>& norm = head < shape.heads ? weights.q_norm : weights.k_norm;
  if (!norm.empty()) {
    const float factor = row_math().rms_factor(values, shape.epsilon, size);
    row_math().scale(values, factor, norm.data(), size, values);
  }
  if (weights.turns) {
    const std::size_t at = index(batch.positions[row]) * shape.pairs;
    turn(values, cosines_.data() + at, sines_.data() + at);
  }
}

// Puts a pending key where attention finds it.
void Pass::keep_key(const Batch& batch, std::size_t layer, std::size_t kv_head, std::size_t row) {
  const std::size_t size = network_.shape.head_dim;
  float key[most_head_width];
  k_.copy(row, kv_head * size, size, key);
  finish_head(batch, *network_.layers[layer], network_.shape.heads + kv_head, row, key);
  const auto [page, place] = pending(batch, row);
  page->put_key(layer, kv_head, place, key, size);
}

void Pass::keep_value(const Batch& batch, std::size_t layer, std::size_t kv_head,
                      std::size_t row) {
  const Shape& shape = network_.shape;
  const std::vector<float>& bias = network_.layers[layer]->qkv_bias;
  const std::size_t size = shape.head_dim, first = kv_head * size;
  float value[most_head_width];
  v_.copy(row, first, size, value);
  if (!bias.empty()) {
    row_math().add(&bias[shape.query_width() + shape.kv_width() + first], size, value);
  }
  const auto [page, place] = pending(batch, row);
  page->put_value(layer, kv_head, place, value, size);
}

// The page where a row waits, and its place there.
std::pair<KVPage*, std::size_t> Pass::pending(const Batch& batch, std::size_t row) const {
  KVSequence& kv = *groups_[index(batch.sequence_of[row])].kv;
  const std::size_t place = kv.place(static_cast<int>(local_[row]));
  return {&kv.page(place / page_positions), place % page_positions};
}

// Turns the leading pairs of a head (Su et al. 2021, 3.4.2).
void Pass::turn(float* head, const float* cosines, const float* sines) const {
  const std::size_t pairs = network_.shape.pairs;
  const bool is_interleaved = network_.shape.is_interleaved;
  for (std::size_t i = 0; i < pairs; ++i) {
    float& x = head[is_interleaved ? 2 * i : i];
    float& y = head[is_interleaved ? 2 * i + 1 : i + pairs];
    const float turned_x = x * cosines[i] - y * sines[i];
    y = x * sines[i] + y * cosines[i];
    x = turned_x;
  }
}

}  // namespace forerun
