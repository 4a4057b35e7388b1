// From a MAC into the switch. A MAC cannot wait: its beats cross to the switch's clock through frame_cross. A MAC that
// gives frames shorter than Ethernet's, without gaps, finds no room there. The types of Ethernet that a beat may hold are
// found on the MAC's side.
module mac_receive
  import switch_pkg::*;
#(
  parameter bit Crosses = 1'b1  // 0: mac_clk_i is clk_i
) (
  input  logic        mac_clk_i,
  input  logic        mac_rst_ni,
  input  logic        s_tvalid_i,
  output logic        s_tready_o,  // for a source that can wait
  input  logic [63:0] s_tdata_i,
  input  logic [7:0]  s_tkeep_i,
  input  logic        s_tlast_i,
  input  logic        s_tuser_i,  // with the last beat: a damaged frame

  input  logic        clk_i,
  input  logic        rst_ni,
  output logic        m_valid_o,
  input  logic        m_ready_i,
  output beat_t       m_beat_o,
  output types_t      m_types_o
);

  frame_cross #(
    .Width  ($bits(types_t) + 3 + 64),
    .Crosses(Crosses)
  ) u_cross (
    .s_clk_i  (mac_clk_i),
    .s_rst_ni (mac_rst_ni),
    .s_valid_i(s_tvalid_i),
    .s_ready_o(s_tready_o),
    .s_last_i (s_tlast_i),
    .s_error_i(s_tuser_i),
    .s_data_i ({types_of(s_tdata_i), extra_of(s_tkeep_i), s_tdata_i}),
    .m_clk_i  (clk_i),
    .m_rst_ni (rst_ni),
    .m_valid_o,
    .m_ready_i,
    .m_last_o (m_beat_o.last),
    .m_error_o(m_beat_o.error),
    .m_data_o ({m_types_o, m_beat_o.extra, m_beat_o.data})
  );

endmodule
