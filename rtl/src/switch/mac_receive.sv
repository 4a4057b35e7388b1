// From a MAC, which cannot wait, into the switch: beats cross to the switch's clock. Should there be no room (a MAC that
// gives frames shorter than Ethernet's without gaps), the frame ends there, damaged, and its rest is left out. The types
// of Ethernet that a beat may hold are found on the MAC's side.
module mac_receive
  import switch_pkg::*;
#(
  parameter bit Crosses = 1'b1  // 0: mac_clk_i is clk_i
) (
  input  logic        mac_clk_i,
  input  logic        mac_rst_ni,
  input  logic        s_tvalid_i,
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

  logic   valid, ready, skips_q, owes_q;  // owes_q: the end of a frame that did not fit
  beat_t  beat, damaged_end;
  types_t types;

  assign damaged_end = '{error: 1'b1, last: 1'b1, extra: '0, data: '0};
  assign types       = types_of(beat.data);
  assign valid       = owes_q || (s_tvalid_i && !skips_q);

  always_comb begin
    beat       = '{error: s_tlast_i && s_tuser_i, last: s_tlast_i, extra: '0, data: s_tdata_i};
    for (int unsigned i = 1; i < 8; i++) if (s_tkeep_i[i]) beat.extra = 3'(i);
    if (owes_q) beat = damaged_end;
  end

  always_ff @(posedge mac_clk_i or negedge mac_rst_ni) begin
    if (!mac_rst_ni) begin
      skips_q <= 1'b0;
      owes_q  <= 1'b0;
    end else begin
      if (s_tvalid_i) skips_q <= (skips_q || owes_q || !ready) && !s_tlast_i;
      owes_q <= valid && !ready;
    end
  end

  if (Crosses) begin : gen_cross
    cross_fifo #(.Width($bits(types_t) + $bits(beat_t))) u_fifo (
      .s_clk_i(mac_clk_i), .s_rst_ni(mac_rst_ni), .s_valid_i(valid), .s_ready_o(ready), .s_data_i({types, beat}),
      .m_clk_i(clk_i), .m_rst_ni(rst_ni), .m_valid_o, .m_ready_i, .m_data_o({m_types_o, m_beat_o})
    );
  end else begin : gen_queue
    stream_queue #(.Width($bits(types_t) + $bits(beat_t)), .Depth(32)) u_queue (
      .clk_i, .rst_ni, .s_valid_i(valid), .s_ready_o(ready), .s_data_i({types, beat}),
      .m_valid_o, .m_ready_i, .m_data_o({m_types_o, m_beat_o})
    );
  end

endmodule
