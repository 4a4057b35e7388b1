// Block floating point as one box: beats of the wire in, FP32 beats out. A command a chunk says how many.
module bfp_decode #(
  parameter int unsigned Lanes      = 16,
  parameter int unsigned Block      = 16,
  parameter int unsigned Mantissa   = 7,
  parameter int unsigned CountWidth = 16
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  command_valid_i,
  output logic                  command_ready_o,
  input  logic [CountWidth-1:0] command_beats_i,

  input  logic                  s_tvalid_i,
  output logic                  s_tready_o,
  input  logic [32*Lanes-1:0]   s_tdata_i,
  input  logic                  s_tlast_i,

  output logic                  m_tvalid_o,
  input  logic                  m_tready_i,
  output logic [32*Lanes-1:0]   m_tdata_o,
  output logic                  m_tlast_o,

  output logic                  malformed_o,
  output logic                  mismatch_o
);

  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1;

  typedef struct packed {
    logic [8*BlocksPerBeat-1:0]    exponent;
    logic [(Mantissa+1)*Lanes-1:0] mantissa;
    logic                          is_last;
  } piece_t;

  logic   cut_valid, cut_ready, piece_valid, piece_ready;
  piece_t cut, piece;

  bfp_unpacker #(
    .Lanes     (Lanes),
    .Block     (Block),
    .Mantissa  (Mantissa),
    .CountWidth(CountWidth)
  ) u_unpacker (
    .clk_i,
    .rst_ni,
    .command_valid_i,
    .command_ready_o,
    .command_beats_i,
    .s_tvalid_i,
    .s_tready_o,
    .s_tdata_i,
    .s_tlast_i,
    .m_tvalid_o  (cut_valid),
    .m_tready_i  (cut_ready),
    .m_exponent_o(cut.exponent),
    .m_mantissa_o(cut.mantissa),
    .m_tlast_o   (cut.is_last),
    .mismatch_o
  );

  // Pieces are the narrowest place on the way. Whether numbers are taken may be known late in a cycle.
  stream_skid #(
    .Width($bits(piece_t))
  ) u_skid (
    .clk_i,
    .rst_ni,
    .s_valid_i(cut_valid),
    .s_ready_o(cut_ready),
    .s_data_i (cut),
    .m_valid_o(piece_valid),
    .m_ready_i(piece_ready),
    .m_data_o (piece)
  );

  bfp_decoder #(
    .Lanes    (Lanes),
    .Block    (Block),
    .Mantissa (Mantissa),
    .UserWidth(1)
  ) u_decoder (
    .clk_i,
    .rst_ni,
    .s_tvalid_i  (piece_valid),
    .s_tready_o  (piece_ready),
    .s_exponent_i(piece.exponent),
    .s_mantissa_i(piece.mantissa),
    .s_tuser_i   (piece.is_last),
    .m_tvalid_o,
    .m_tready_i,
    .m_tdata_o,
    .m_tuser_o   (m_tlast_o),
    .malformed_o
  );

endmodule
