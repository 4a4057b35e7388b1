// frame_fifo: committed beats come out in order, beats that are rolled back never do, and trial beats do not overwrite.
module frame_fifo_formal (
  input logic       clk_i,
  input logic       s_valid_i,
  input logic [7:0] s_data_i,
  input logic       commit_i,
  input logic       rollback_i,
  input logic       m_ready_i,
  input logic [7:0] follow_i
);

  localparam int unsigned Depth = 4;

  logic       first = 1'b1;
  logic       s_ready, m_valid, push;
  logic [2:0] free;
  logic [7:0] m_data, trial, committed, out, data, was_follow, behind;
  logic       seen;  // the followed beat is in the trial or committed, with `data`

  frame_fifo #(.Width(8), .Depth(Depth)) u_fifo (
    .clk_i, .rst_ni(!first), .s_valid_i, .s_ready_o(s_ready), .s_data_i, .commit_i, .rollback_i,
    .m_valid_o(m_valid), .m_ready_i, .m_data_o(m_data), .free_o(free)
  );

  assign push   = s_valid_i && s_ready;
  assign seen   = 8'(follow_i - out) < 8'(trial - out);
  assign behind = follow_i - out - 8'(m_valid);

  always_ff @(posedge clk_i) begin
    first      <= 1'b0;
    was_follow <= follow_i;
    if (first) begin
      trial     <= '0;
      committed <= '0;
      out       <= '0;
    end else begin
      trial <= rollback_i ? committed : trial + 8'(push);
      if (push && trial == follow_i) data <= s_data_i;
      if (commit_i) committed <= trial;
      if (m_valid && m_ready_i) out <= out + 8'd1;
    end
  end

  always_comb begin
    if (!first) begin
      assume (follow_i == was_follow);
      assume (!(commit_i && rollback_i) && !(s_valid_i && (commit_i || rollback_i)));
      // The counters outside agree with the content.
      assert (8'(3'(u_fifo.trial - u_fifo.read_q)) == trial - out - 8'(m_valid));
      assert (8'(3'(u_fifo.committed_q - u_fifo.read_q)) == committed - out - 8'(m_valid));
      assert (committed - out - 8'(m_valid) <= trial - out - 8'(m_valid));
      assert (trial - out - 8'(m_valid) <= 8'(Depth));
      assert (free == 3'(Depth) - 3'(u_fifo.trial - u_fifo.read_q));
      if (m_valid) assert (out != committed);  // no uncommitted beat comes out
      if (seen && out == follow_i && m_valid) assert (m_data == data);
      if (seen && !(out == follow_i && m_valid)) assert (u_fifo.memory[2'(u_fifo.read_q[1:0] + behind[1:0])] == data);
    end
  end

endmodule
