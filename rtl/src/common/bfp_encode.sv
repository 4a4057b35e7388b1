// Block floating point as one box: FP32 beats in, beats of the wire out.
module bfp_encode #(
  parameter int unsigned Lanes    = 16,
  parameter int unsigned Block    = 16,
  parameter int unsigned Mantissa = 7
) (
  input  logic                clk_i,
  input  logic                rst_ni,

  input  logic                s_tvalid_i,
  output logic                s_tready_o,
  input  logic [32*Lanes-1:0] s_tdata_i,
  input  logic                s_tlast_i,

  output logic                m_tvalid_o,
  input  logic                m_tready_i,
  output logic [32*Lanes-1:0] m_tdata_o,
  output logic                m_tlast_o
);

  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1;

  logic                          valid, ready, first, last;
  logic [8*BlocksPerBeat-1:0]    exponent;
  logic [(Mantissa+1)*Lanes-1:0] mantissa;

  bfp_encoder #(
    .Lanes   (Lanes),
    .Block   (Block),
    .Mantissa(Mantissa)
  ) u_encoder (
    .clk_i,
    .rst_ni,
    .s_tvalid_i,
    .s_tready_o,
    .s_tdata_i,
    .s_tlast_i,
    .m_tvalid_o  (valid),
    .m_tready_i  (ready),
    .m_exponent_o(exponent),
    .m_mantissa_o(mantissa),
    .m_first_o   (first),
    .m_tlast_o   (last)
  );

  bfp_packer #(
    .Lanes   (Lanes),
    .Block   (Block),
    .Mantissa(Mantissa)
  ) u_packer (
    .clk_i,
    .rst_ni,
    .s_tvalid_i  (valid),
    .s_tready_o  (ready),
    .s_exponent_i(exponent),
    .s_mantissa_i(mantissa),
    .s_first_i   (first),
    .s_tlast_i   (last),
    .m_tvalid_o,
    .m_tready_i,
    .m_tdata_o,
    .m_tlast_o
  );

endmodule
