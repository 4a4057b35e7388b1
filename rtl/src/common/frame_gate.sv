// Frames to a MAC whose clock is faster than that of their source. A MAC takes the beats of a frame without a pause, or
// breaks it off. So a frame begins when it is here as a whole, or so far that the rest comes in time. Where its source may
// pause for as long as it likes (`Whole`), only the former.
module frame_gate #(
  parameter int unsigned Width      = 512,
  parameter int unsigned FrameBeats = 23,  // of the longest frame
  parameter int unsigned Depth      = 32,  // a power of two, more than the beats that are waited for
  parameter bit          Whole      = 1'b0
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             s_valid_i,
  output logic             s_ready_o,
  input  logic             s_last_i,
  input  logic [Width-1:0] s_data_i,

  output logic             m_valid_o,
  input  logic             m_ready_i,
  output logic             m_last_o,
  output logic [Width-1:0] m_data_o
);

  // For a clock that is faster by up to a third: the source gives three beats while the MAC takes four. The crossing can
  // delay a beat against the first one by two cycles.
  localparam int unsigned Ahead      = FrameBeats / 4 + 4;
  localparam int unsigned LevelWidth = $clog2(Depth + 2);

  logic [LevelWidth-1:0] level, ends_q;  // ends_q: last beats that are here
  logic                  valid, starts_q, may_start_q, comes, ends;

  stream_fifo #(
    .Width(Width + 1),
    .Depth(Depth)
  ) u_fifo (
    .clk_i,
    .rst_ni,
    .s_valid_i,
    .s_ready_o,
    .s_data_i ({s_last_i, s_data_i}),
    .m_valid_o(valid),
    .m_ready_i(m_ready_i && m_valid_o),
    .m_data_o ({m_last_o, m_data_o}),
    .level_o  (level)
  );

  assign m_valid_o = valid && (!starts_q || may_start_q);
  assign comes     = s_valid_i && s_ready_o && s_last_i;
  assign ends      = m_valid_o && m_ready_i && m_last_o;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      ends_q      <= '0;
      starts_q    <= 1'b1;
      may_start_q <= 1'b0;
    end else begin
      ends_q <= ends_q + LevelWidth'(comes) - LevelWidth'(ends);
      if (m_valid_o && m_ready_i) starts_q <= m_last_o;
      // Of the frame that is next: not in the cycle in which the one before ends.
      may_start_q <= !ends && (ends_q != '0 || (!Whole && level >= LevelWidth'(Ahead)));
    end
  end

endmodule
