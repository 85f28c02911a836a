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

void reserve(AlignedFloats& floats, std::size_t size) {
  if (floats.size() < size) floats.resize(size);
}

}  // namespace

Pass::Pass(Network network, KVType type, std::size_t threads)
    : network_(std::move(network)),
      type_(type),
      pool_(threads),
      barrier_(threads),
      attention_(network_.shape, type, threads),
      streams_(threads) {
  if (threads == 0) throw std::invalid_argument("no threads");
  network_.check();
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
  for (AlignedFloats& stream : streams_) reserve(stream, rows_ * shape.width);
  reserve(delta_, rows_ * shape.width);
  reserve(qkv_, rows_ * shape.qkv_width());
  reserve(gate_up_, rows_ * 2 * shape.inner);
  normed_.resize(rows_, shape.width);
  heads_.resize(rows_, shape.query_width());
  inner_.resize(rows_, shape.inner);
  last_.resize(batch.asked.size(), shape.width);
}

void Pass::work(const Batch& batch, std::size_t thread) {
  for (std::size_t layer = 0; layer < end(batch); ++layer) {
    enter(batch, layer, thread);
    attend(batch, layer, thread);
    feed_forward(batch, layer, thread);
    if (is_over_) return;
  }
  finish(batch, thread);
}

// Completes the stream that enters a layer, and normalises it for q, k and v.
void Pass::enter(const Batch& batch, std::size_t layer, std::size_t thread) {
  const Share share(rows_, thread, threads());
  for (std::size_t row = 0; row < rows_; ++row) {
    if (layer == 0) {
      const std::size_t token = index(batch.tokens[row]);
      dequantise_row(network_.ends->embedding.first(), token, stream(thread, row));
    } else {
      add_delta(thread, row);
    }
    if (row >= share.first && row < share.last) keep_hidden(batch, layer, thread, row);
    normalise(thread, row, network_.layers[layer]->attention_norm, normed_, row);
  }
  barrier_.wait();
}

void Pass::add_delta(std::size_t thread, std::size_t row) {
  const std::size_t width = network_.shape.width;
  row_math().add(&delta_[row * width], width, stream(thread, row));
}

// Normalises the thread's columns of a row of the stream. Threads that each did some of the rows
// would write to the same cache lines, because rows that are multiplied lie interleaved.
void Pass::normalise(std::size_t thread, std::size_t row, const std::vector<float>& weight,
                     Activations& to, std::size_t to_row) {
  const Shape& shape = network_.shape;
  const auto [first, last] = columns(shape.width, thread);
  if (first >= last) return;
  const float* const x = stream(thread, row);
  const float factor = row_math().rms_factor(x, shape.epsilon, shape.width);
  float* const out = to.row(to_row) + first;
  row_math().scale(x + first, factor, &weight[first], last - first, out);
  to.quantise(to_row, first, last - first);
}

void Pass::attend(const Batch& batch, std::size_t layer, std::size_t thread) {
  const LayerWeights& weights = *network_.layers[layer];
  weights.qkv.run(normed_, thread, threads(), qkv_.data(),
                  weights.output.first_panel(thread, threads()));
  barrier_.wait();
  split_heads(batch, layer, thread);
  barrier_.wait();
  attention_.run(groups_, layer, thread, heads_);
  barrier_.wait();
  if (!attention_.quantises()) {
    const Share share(rows_, thread, threads());
    for (std::size_t row = share.first; row < share.last; ++row) heads_.quantise(row);
    barrier_.wait();
  }
  weights.output.run(heads_, thread, threads(), delta_.data(),
                     weights.gate_up.first().panel(columns(network_.shape.inner, thread).first / panel_outputs));
  barrier_.wait();
}

void Pass::feed_forward(const Batch& batch, std::size_t layer, std::size_t thread) {
  const LayerWeights& weights = *network_.layers[layer];
  for (std::size_t row = 0; row < rows_; ++row) {
    add_delta(thread, row);
    normalise(thread, row, weights.inner_norm, normed_, row);
  }
  barrier_.wait();
  gate(weights, thread);
  barrier_.wait();
  const bool is_last = layer + 1 == end(batch);
  const Product& next = is_last ? head(batch) : network_.layers[layer + 1]->qkv;
  weights.down.run(inner_, thread, threads(), delta_.data(), next.first_panel(thread, threads()));
  if (thread == 0 && batch.is_over && batch.is_over()) is_over_ = true;
  barrier_.wait();
}

// The thread's part of `count` columns, whole groups.
Share Pass::columns(std::size_t count, std::size_t thread) const {
  Share share((count + group_inputs - 1) / group_inputs, thread, threads());
  share.first *= group_inputs;
  share.last = std::min(share.last * group_inputs, count);
  return share;
}

// The thread's columns of gate and up, and of what becomes of them.
void Pass::gate(const LayerWeights& weights, std::size_t thread) {
  const std::size_t inner = network_.shape.inner;
  const auto [first, last] = columns(inner, thread);
  if (first >= last) return;
  weights.gate_up.run_columns(normed_, first, last, gate_up_.data(),
                              weights.down.first_panel(thread, threads()));
  for (std::size_t row = 0; row < rows_; ++row) {
    const float* const gate = &gate_up_[row * 2 * inner + first];
    row_math().silu_gate(gate, gate + inner, last - first, inner_.row(row) + first);
    inner_.quantise(row, first, last - first);
  }
}

void Pass::finish(const Batch& batch, std::size_t thread) {
  const Share share(rows_, thread, threads());
  for (std::size_t row = 0; row < rows_; ++row) {
    add_delta(thread, row);
    if (row >= share.first && row < share.last) {
      keep_hidden(batch, end(batch), thread, row);
    }
  }
  for (std::size_t i = 0; i < batch.asked.size(); ++i) {
    normalise(thread, index(batch.asked[i]), network_.ends->norm, last_, i);
  }
  barrier_.wait();
  if (batch.asked.empty()) return;
  head(batch).run(last_, thread, threads(), batch.logits, nullptr);
}

const Product& Pass::head(const Batch& batch) const {
  return batch.head != nullptr ? *batch.head : network_.ends->head();
}

void Pass::keep_hidden(const Batch& batch, std::size_t layer, std::size_t thread,
                       std::size_t row) {
  const std::size_t width = network_.shape.width;
  for (std::size_t i = 0; i < batch.layers.size(); ++i) {
    if (index(batch.layers[i]) != layer) continue;
    std::memcpy(batch.hidden[i] + row * width, stream(thread, row), width * sizeof(float));
  }
}

// Makes queries of q, and pending keys and values of k and v: these cost three times as much.
void Pass::split_heads(const Batch& batch, std::size_t layer, std::size_t thread) {
  const Shape& shape = network_.shape;
  // By heads first: threads then write to different cache lines of a page.
  const std::size_t queries = shape.heads * rows_, cost = 3;
  const Share share(queries + cost * shape.kv_heads * rows_, thread, threads());
  const auto place = [&](std::size_t part) {
    return part < queries ? part : queries + (part - queries + cost - 1) / cost;
  };
  for (std::size_t i = place(share.first); i < place(share.last); ++i) {
    place_head(batch, layer, i / rows_, i % rows_);
  }
}

void Pass::place_head(const Batch& batch, std::size_t layer, std::size_t head, std::size_t row) {
  const Shape& shape = network_.shape;
  const LayerWeights& weights = *network_.layers[layer];
  const std::size_t size = shape.head_dim;
  const bool is_query = head < shape.heads;
  float* const from = &qkv_[row * shape.qkv_width() + head * size];
  if (!weights.qkv_bias.empty()) row_math().add(&weights.qkv_bias[head * size], size, from);
  const std::vector<float>& norm = is_query ? weights.q_norm : weights.k_norm;
  if (!norm.empty()) {
    const float factor = row_math().rms_factor(from, shape.epsilon, size);
    row_math().scale(from, factor, norm.data(), size, from);
  }
  if (weights.turns) {
    const std::size_t at = index(batch.positions[row]) * shape.pairs;
    turn(from, cosines_.data() + at, sines_.data() + at);
  }
  if (is_query) {
    attention_.set_query(row, head, from);
    return;
  }
  float* const value = from + shape.kv_heads * size;
  const std::size_t value_head = head + shape.kv_heads;
  if (!weights.qkv_bias.empty()) row_math().add(&weights.qkv_bias[value_head * size], size, value);
  KVSequence& kv = *groups_[index(batch.sequence_of[row])].kv;
  const std::size_t place = kv.place(static_cast<int>(local_[row]));
  kv.page(place / page_positions)
      .put(layer, head - shape.heads, place % page_positions, from, value, size);
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
