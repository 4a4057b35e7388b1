// Out of the switch to a MAC, on its clock. A MAC takes a frame's beats without a pause, or breaks it off. They are
// there in time: a frame that is cut through has waited for its second beat and a cycle (11.4 ns). That is as much as
// sampling on the way in (5 ns) and on the way out (6.4 ns) can delay one beat against another; all others come faster
// than the MAC sends.
module mac_send
  import switch_pkg::*;
#(
  parameter bit Crosses = 1'b1  // 0: mac_clk_i is clk_i
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        s_valid_i,
  output logic        s_ready_o,
  input  beat_t       s_beat_i,

  input  logic        mac_clk_i,
  input  logic        mac_rst_ni,
  output logic        m_tvalid_o,
  input  logic        m_tready_i,
  output logic [63:0] m_tdata_o,
  output logic [7:0]  m_tkeep_o,
  output logic        m_tlast_o,
  output logic        m_tuser_o   // with the last beat: to be sent damaged
);

  beat_t beat;

  if (Crosses) begin : gen_cross
    cross_fifo #(.Width($bits(beat_t))) u_fifo (
      .s_clk_i(clk_i), .s_rst_ni(rst_ni), .s_valid_i, .s_ready_o, .s_data_i(s_beat_i),
      .m_clk_i(mac_clk_i), .m_rst_ni(mac_rst_ni), .m_valid_o(m_tvalid_o), .m_ready_i(m_tready_i), .m_data_o(beat)
    );
  end else begin : gen_queue
    logic unused_clock;
    assign unused_clock = ^{mac_clk_i, mac_rst_ni};

    stream_queue #(.Width($bits(beat_t)), .Depth(32)) u_queue (
      .clk_i, .rst_ni, .s_valid_i, .s_ready_o, .s_data_i(s_beat_i),
      .m_valid_o(m_tvalid_o), .m_ready_i(m_tready_i), .m_data_o(beat)
    );
  end

  assign m_tdata_o = beat.data;
  assign m_tlast_o = beat.last;
  assign m_tuser_o = beat.last && beat.error;
  assign m_tkeep_o = beat.last ? keep_of(beat.extra) : '1;

endmodule
