// Weights as a GGUF file stores them: rows of blocks, each with its scales and small integers.
//
// Unpacking loses nothing: it makes the same integers and scales of every type, so that packing
// (matrix.h) and products (multiply.h) need not know what a file calls them. The K types hold 256
// inputs a block; a group of 32 there has factors of 6 bits, and its scale is the factor times a
// half float of the block. In Q6_K each 16 inputs have a factor, of 8 bits with a sign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "layout.h"

namespace forerun {

enum class TensorType { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

// The type that GGML calls so, say "Q4_1".
// Throws std::invalid_argument if it is none of these.
TensorType type_called(const std::string& name);

// How weights of a type are packed.
Layout layout_of(TensorType type);

// Inputs of a stored block; 1 for the float types.
std::size_t stored_inputs(TensorType type);

// Bytes of one row of `inputs` weights as a GGUF file stores it.
// Throws std::invalid_argument if a row is not made of whole blocks.
std::size_t stored_row_bytes(TensorType type, std::size_t inputs);

constexpr std::size_t most_block_inputs = 256;

// A block of quantised weights, taken apart.
struct UnpackedBlock {
  std::uint8_t values[most_block_inputs];  // with the layout's offset: never negative
  std::uint16_t halves[2];                 // the scale; the minimum, which is to be added
  std::uint8_t factors[most_block_inputs / group_inputs][2];  // of layouts with blocks
};

// Takes apart the block that begins at `stored`.
UnpackedBlock unpack_block(TensorType type, const std::uint8_t* stored);

}  // namespace forerun
