// Encodes sums of floats as block floating point, four elements a cycle, and writes them as a payload: behind the last
// whole block it is filled up with zeros. Beats come at half the pace at which they are read to be sent; the sum is
// told of when what is missing will be there in time.
module bfp_writer
  import aggregation_pkg::*;
#(
  parameter int unsigned PlaceAddressWidth = 9,
  localparam int unsigned Lanes = 4
) (
  input  logic                         clk_i,
  input  logic                         rst_ni,

  input  logic                         start_i,   // a sum will come; sixteen at most at a time
  input  logic [PlaceAddressWidth-1:0] place_i,
  input  logic [8:0]                   words_i,
  output logic                         is_busy_o,

  input  logic                         s_valid_i,
  input  logic                         s_last_i,
  input  logic [32*Lanes-1:0]          s_data_i,

  output logic                         write_o,
  output logic [PlaceAddressWidth+6:0] address_o,
  output logic [63:0]                  data_o,
  output logic                         tells_o
);

  localparam int unsigned BlockWords = 5;   // the first length that has a block
  localparam logic [6:0]  TellBeat   = 7'd64;

  // --- Sums that come ---
  typedef struct packed {
    logic [PlaceAddressWidth-1:0] place;
    logic [8:0]                   words;
  } sum_t;

  sum_t sum;
  logic is_here, ends, unused_ready;

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

  // --- From numbers to beats of 16 bytes ---
  logic         encoder_ready, piece_valid, piece_ready, first, last, packed_valid, packed_last, takes;
  logic [7:0]   exponent;
  logic [31:0]  mantissa;
  logic [127:0] packed_data;

  bfp_encoder #(
    .Lanes   (Lanes),
    .Block   (16),
    .Mantissa(7)
  ) u_encoder (
    .clk_i,
    .rst_ni,
    .s_tvalid_i  (s_valid_i && is_here),
    .s_tready_o  (encoder_ready),  // always: nobody makes it wait
    .s_tdata_i   (s_data_i),
    .s_tlast_i   (s_last_i),
    .m_tvalid_o  (piece_valid),
    .m_tready_i  (piece_ready),
    .m_exponent_o(exponent),
    .m_mantissa_o(mantissa),
    .m_first_o   (first),
    .m_tlast_o   (last)
  );

  bfp_packer #(
    .Lanes   (Lanes),
    .Block   (16),
    .Mantissa(7)
  ) u_packer (
    .clk_i,
    .rst_ni,
    .s_tvalid_i  (piece_valid),
    .s_tready_o  (piece_ready),
    .s_exponent_i(exponent),
    .s_mantissa_i(mantissa),
    .s_first_i   (first),
    .s_tlast_i   (last),
    .m_tvalid_o  (packed_valid),
    .m_tready_i  (takes),
    .m_tdata_o   (packed_data),
    .m_tlast_o   (packed_last)
  );

  // --- Halves of them, one after the other, and zeros behind the last block ---
  logic [127:0] rest_q;
  logic [1:0]   halves_q;
  logic         is_all_q, fills;
  logic [6:0]   beat_q, last_beat;

  assign last_beat = 7'((sum.words - 9'd1) >> 1);
  assign takes     = is_here && halves_q == '0 && !fills;
  assign fills     = halves_q == '0 && (is_all_q || sum.words < 9'(BlockWords));
  assign write_o   = is_here && (halves_q != '0 || fills);
  assign address_o = {sum.place, beat_q};
  assign data_o    = halves_q != '0 ? rest_q[63:0] : '0;
  // A last beat of sixteen bytes may be longer than the payload: the sum ends with the payload.
  assign ends      = write_o && beat_q == last_beat;
  assign tells_o   = write_o && beat_q == (last_beat < TellBeat ? last_beat : TellBeat);
  assign is_busy_o = is_here;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      halves_q <= '0;
      is_all_q <= 1'b0;
      beat_q   <= '0;
    end else if (ends) begin
      halves_q <= '0;
      is_all_q <= 1'b0;
      beat_q   <= '0;
    end else begin
      if (write_o) beat_q <= beat_q + 7'd1;
      if (takes && packed_valid) begin
        halves_q <= 2'd2;
        is_all_q <= packed_last;
      end else if (halves_q != '0) begin
        halves_q <= halves_q - 2'd1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    rest_q <= takes ? packed_data : rest_q >> 64;
  end

  logic unused_encoder_ready;
  assign unused_encoder_ready = encoder_ready;

endmodule
