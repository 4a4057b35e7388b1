// Writes sums of floats as payloads of block floating point: encoded by bfp_sum_encoder, its bytes put one behind the
// other, and filled up with zeros behind the last whole block. Beats come a little slower than they are read to be
// sent; the sum is told of when what is missing will be there in time.
module bfp_writer
  import aggregation_pkg::*;
#(
  parameter int unsigned PlaceAddressWidth = 9
) (
  input  logic                         clk_i,
  input  logic                         rst_ni,

  input  logic                         start_i,   // a sum will come; sixteen at most at a time
  input  logic [PlaceAddressWidth-1:0] place_i,
  input  logic [8:0]                   words_i,
  output logic                         is_busy_o,

  // Between payloads there is a gap of four cycles.
  input  bfp_step_t                    s_step_i,
  input  logic [2*BfpPairs-1:0][31:0]  s_data_i,

  output logic                         write_o,
  output logic [PlaceAddressWidth+6:0] address_o,
  output logic [63:0]                  data_o,
  output logic                         tells_o
);

  localparam int unsigned BlockWords = 5;   // the first length that has a block
  localparam int unsigned BeatBytes  = 8;
  localparam logic [6:0]  TellBeat   = 7'd32;  // 95 more take 120 cycles, and 127 to be read

  // --- Sums that come ---
  typedef struct packed {
    logic [PlaceAddressWidth-1:0] place;
    logic [8:0]                   words;
  } sum_t;

  sum_t sum;
  logic is_here, ends, unused_ready, unused_completes;

  stream_queue #(
    .Width($bits(sum_t)),
    .Depth(16)
  ) u_sums (
    .clk_i,
    .rst_ni,
    .s_valid_i(start_i),
    .s_ready_o(unused_ready),
    .s_data_i ({place_i, words_i}),
    .m_valid_o(is_here),
    .m_ready_i(ends),
    .m_data_o (sum)
  );

  bfp_step_t                  s_step, step;
  logic [7:0]                 exponent;
  logic [2*BfpPairs-1:0][7:0] mantissa;

  // The reader's and the adders' delays have no reset. Steps that come without a sum are of one that a reset has ended.
  always_comb begin
    s_step          = s_step_i;
    s_step.is_valid = s_step_i.is_valid && is_here;
  end

  bfp_sum_encoder u_encoder (
    .clk_i,
    .rst_ni,
    .s_step_i    (s_step),
    .s_data_i,
    .m_step_o    (step),
    .m_exponent_o(exponent),
    .m_mantissa_o(mantissa)
  );

  assign unused_completes = step.completes;

  // --- The exponent goes before its block's first pair; and the first byte to its place behind those that are left ---
  logic [2*BfpPairs:0][7:0]  piece;
  logic [BeatBytes-1:0][7:0] turned_q;
  logic [2:0]                level, level_q, before_q;  // bytes that are left
  logic [3:0]                level_next;
  logic                      is_first_q, is_last_q, is_full_q;

  always_comb begin
    piece = {8'd0, mantissa};
    if (step.begins) begin
      unique case (step.old)
        2'd0:    piece = {mantissa, exponent};
        2'd1:    piece = {mantissa[5:2], exponent, mantissa[1:0]};
        default: piece = {mantissa[5:4], exponent, mantissa[3:0]};
      endcase
    end
  end

  assign level      = is_first_q ? '0 : level_q;
  assign level_next = 4'(level) + (step.begins ? 4'd7 : {1'b0, step.old, 1'b0});

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_first_q <= 1'b1;
      is_last_q  <= 1'b0;
      is_full_q  <= 1'b0;
      level_q    <= '0;  // a sum without a block may be the first: nothing is left before it
    end else begin
      if (step.is_valid) is_first_q <= step.is_last;
      is_last_q <= step.is_valid && step.is_last;
      is_full_q <= step.is_valid && level_next[3];
      if (step.is_valid) level_q <= level_next[2:0];
    end
  end

  always_ff @(posedge clk_i) begin
    before_q <= step.is_valid ? level : level_q;
    turned_q <= step.is_valid ? 64'(({2{8'd0, piece}} << {level, 3'b000}) >> 64) : '0;
  end

  // --- Beats that are full; at the end what is left, and zeros ---
  logic                      fills_q, fills;
  logic [BeatBytes-1:0][7:0] left_q;
  logic [6:0]                beat_q, last_beat;

  // The rest of a beat, and then the bytes beyond it.
  for (genvar byte_ = 0; byte_ < BeatBytes; byte_++) begin : gen_byte
    logic is_behind;

    assign is_behind = byte_ >= 32'(before_q);
    assign data_o[8*byte_ +: 8] = is_behind ? turned_q[byte_] : left_q[byte_];

    always_ff @(posedge clk_i) begin
      if (is_full_q || is_behind || fills) left_q[byte_] <= turned_q[byte_];
    end
  end

  assign last_beat = 7'((sum.words - 9'd1) >> 1);
  assign fills     = is_here && (fills_q || sum.words < 9'(BlockWords));
  assign write_o   = is_full_q || fills;
  assign address_o = {sum.place, beat_q};
  assign ends      = write_o && beat_q == last_beat;
  assign tells_o   = write_o && beat_q == (last_beat < TellBeat ? last_beat : TellBeat);
  assign is_busy_o = is_here;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      fills_q <= 1'b0;
      beat_q  <= '0;
    end else if (ends) begin
      fills_q <= 1'b0;
      beat_q  <= '0;
    end else begin
      if (write_o) beat_q <= beat_q + 7'd1;
      if (is_last_q) fills_q <= 1'b1;
    end
  end

endmodule
