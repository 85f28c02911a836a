#include "stored_blocks.h"

#include <cstring>
#include <stdexcept>

namespace forerun {

namespace {

struct Stored {
  const char* name;
  TensorType type;
  Layout layout;
  std::size_t inputs;  // of a block
  std::size_t bytes;   // of a block
};

constexpr Stored types[] = {
    {"F32", TensorType::f32, Layout::f32, 1, 4},
    {"F16", TensorType::f16, Layout::f16, 1, 2},
    {"BF16", TensorType::bf16, Layout::bf16, 1, 2},
    {"Q4_0", TensorType::q4_0, Layout::offset_4, 32, 18},
    {"Q4_1", TensorType::q4_1, Layout::minimum_4, 32, 20},
    {"Q5_0", TensorType::q5_0, Layout::offset_8, 32, 22},
    {"Q5_1", TensorType::q5_1, Layout::minimum_8, 32, 24},
    {"Q8_0", TensorType::q8_0, Layout::offset_8, 32, 34},
    {"Q4_K", TensorType::q4_k, Layout::block_minimum_4, 256, 144},
    {"Q5_K", TensorType::q5_k, Layout::block_minimum_8, 256, 176},
    {"Q6_K", TensorType::q6_k, Layout::block_offset_8, 256, 210},
};

const Stored& stored_as(TensorType type) { return types[static_cast<std::size_t>(type)]; }

const std::uint8_t* take_halves(const std::uint8_t* stored, std::size_t count,
                                UnpackedBlock& block) {
  std::memcpy(block.halves, stored, 2 * count);
  return stored + 2 * count;
}

// Bytes of two halves: the low ones first, then the high ones.
void split_bytes(const std::uint8_t* pairs, std::size_t count, std::uint8_t* values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = pairs[i] & 15;
    values[count + i] = pairs[i] >> 4;
  }
}

// Four bytes of fifth bits, one for each input.
void unpack_q5(const std::uint8_t* stored, std::uint8_t bias, UnpackedBlock& block) {
  split_bytes(stored + 4, 16, block.values);
  for (std::size_t i = 0; i < 32; ++i) {
    const int fifth = stored[i / 8] >> i % 8 & 1;
    block.values[i] = static_cast<std::uint8_t>((block.values[i] | fifth << 4) + bias);
  }
}

// Twelve bytes with 8 factors of the scale and 8 of the minimum, of 6 bits each: 4 scales, 4
// minima, and bytes with the low 4 bits of the other scales and minima, whose high 2 bits stand
// above the first ones.
void unpack_factors(const std::uint8_t* stored, UnpackedBlock& block) {
  for (std::size_t i = 0; i < 4; ++i) {
    const int scale = stored[i], minimum = stored[4 + i], low = stored[8 + i];
    block.factors[i][0] = scale & 63;
    block.factors[i][1] = minimum & 63;
    block.factors[4 + i][0] = static_cast<std::uint8_t>((low & 15) | (scale >> 6) << 4);
    block.factors[4 + i][1] = static_cast<std::uint8_t>(low >> 4 | (minimum >> 6) << 4);
  }
}

// Minima are stored to be subtracted. Their half float changes its sign, so all that follows from
// it does, exactly.
const std::uint8_t* unpack_heads(const std::uint8_t* stored, UnpackedBlock& block) {
  stored = take_halves(stored, 2, block);
  block.halves[1] ^= 0x8000u;
  unpack_factors(stored, block);
  return stored + 12;
}

void unpack_q4_k(const std::uint8_t* stored, UnpackedBlock& block) {
  const std::uint8_t* pairs = unpack_heads(stored, block);
  for (std::size_t i = 0; i < 4; ++i) split_bytes(pairs + 32 * i, 32, block.values + 64 * i);
}

// 32 bytes of fifth bits: bit g of byte i belongs to input i of group g.
void unpack_q5_k(const std::uint8_t* stored, UnpackedBlock& block) {
  const std::uint8_t* fifths = unpack_heads(stored, block);
  for (std::size_t i = 0; i < 4; ++i) split_bytes(fifths + 32 + 32 * i, 32, block.values + 64 * i);
  for (std::size_t i = 0; i < 256; ++i) {
    block.values[i] |= static_cast<std::uint8_t>((fifths[i % 32] >> i / 32 & 1) << 4);
  }
}

// 128 bytes with the low 4 bits, 64 with the high 2, 16 factors, the half float; halves of the
// block apart. The integers are from 0 to 63 and stand for -32 to 31.
void unpack_q6_k(const std::uint8_t* stored, UnpackedBlock& block) {
  const std::uint8_t* high = stored + 128;
  for (std::size_t half = 0; half < 2; ++half) {
    split_bytes(stored + 64 * half, 64, block.values + 128 * half);
    for (std::size_t i = 0; i < 128; ++i) {
      std::uint8_t& value = block.values[128 * half + i];
      const int top = high[32 * half + i % 32] >> i / 32 * 2 & 3;
      value = static_cast<std::uint8_t>((value | top << 4) - 32 + 128);
    }
  }
  std::memcpy(block.factors, stored + 192, 16);
  take_halves(stored + 208, 1, block);
}

}  // namespace

TensorType type_called(const std::string& name) {
  for (const Stored& stored : types) {
    if (name == stored.name) return stored.type;
  }
  throw std::invalid_argument("No tensor type is called " + name + ".");
}

Layout layout_of(TensorType type) { return stored_as(type).layout; }

std::size_t stored_inputs(TensorType type) { return stored_as(type).inputs; }

std::size_t stored_row_bytes(TensorType type, std::size_t inputs) {
  const Stored& stored = stored_as(type);
  if (inputs % stored.inputs != 0) {
    throw std::invalid_argument("Rows of " + std::to_string(inputs) +
                                " weights are not made of groups of " +
                                std::to_string(stored.inputs) + ".");
  }
  return inputs / stored.inputs * stored.bytes;
}

UnpackedBlock unpack_block(TensorType type, const std::uint8_t* stored) {
  UnpackedBlock block;
  switch (type) {
    case TensorType::q4_0: split_bytes(take_halves(stored, 1, block), 16, block.values); break;
    case TensorType::q4_1: split_bytes(take_halves(stored, 2, block), 16, block.values); break;
    case TensorType::q5_0: unpack_q5(take_halves(stored, 1, block), 128 - 16, block); break;
    case TensorType::q5_1: unpack_q5(take_halves(stored, 2, block), 0, block); break;
    case TensorType::q8_0:
      stored = take_halves(stored, 1, block);
      for (std::size_t i = 0; i < 32; ++i) block.values[i] = stored[i] ^ 0x80;  // + 128
      break;
    case TensorType::q4_k: unpack_q4_k(stored, block); break;
    case TensorType::q5_k: unpack_q5_k(stored, block); break;
    case TensorType::q6_k: unpack_q6_k(stored, block); break;
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16: break;  // have no blocks
  }
  return block;
}

}  // namespace forerun
