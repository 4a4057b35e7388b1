// A FIFO for what may turn out to be damaged. Beats are written on trial; `commit_i` makes all of them readable,
// `rollback_i` forgets them. Read as a stream_fifo.
//
// A commit or rollback concerns the beats of earlier cycles. No beat may come in the cycle of one: so whether there is
// room does not depend on it.
module frame_fifo #(
  parameter int unsigned Width = 32,
  parameter int unsigned Depth = 16,  // a power of two
  localparam int unsigned LevelWidth = $clog2(Depth + 1)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  s_valid_i,
  output logic                  s_ready_o,
  input  logic [Width-1:0]      s_data_i,
  input  logic                  commit_i,
  input  logic                  rollback_i,

  output logic                  m_valid_o,
  input  logic                  m_ready_i,
  output logic [Width-1:0]      m_data_o,

  output logic [LevelWidth-1:0] free_o  // places that neither committed nor trial beats take
);

  localparam int unsigned PointerWidth = $clog2(Depth);

  logic [Width-1:0]      memory [Depth];
  logic [PointerWidth:0] trial_q, trial, committed_q, read_q;
  logic                  rolled_back_q, out_valid_q;
  logic [Width-1:0]      out_q;
  logic                  push, pull;

  // A rollback takes effect here, a cycle later: a frame's checksum decides about it, late in its cycle.
  assign trial     = rolled_back_q ? committed_q : trial_q;
  assign s_ready_o = trial != (read_q ^ (PointerWidth + 1)'(Depth));
  assign push      = s_valid_i && s_ready_o;
  assign pull      = committed_q != read_q && (!out_valid_q || m_ready_i);
  assign m_valid_o = out_valid_q;
  assign m_data_o  = out_q;
  assign free_o    = LevelWidth'(Depth) - LevelWidth'(trial - read_q);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      trial_q       <= '0;
      rolled_back_q <= 1'b0;
      committed_q   <= '0;
      read_q        <= '0;
      out_valid_q   <= 1'b0;
    end else begin
      // After a rollback the next beat overwrites what was forgotten.
      trial_q       <= trial + (PointerWidth + 1)'(push);
      rolled_back_q <= rollback_i;
      if (commit_i) committed_q <= trial;
      if (pull) read_q <= read_q + 1'b1;
      out_valid_q <= pull || (out_valid_q && !m_ready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (push) memory[trial[PointerWidth-1:0]] <= s_data_i;
    if (pull) out_q <= memory[read_q[PointerWidth-1:0]];
  end

endmodule
