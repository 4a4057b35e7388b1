// frame_queue: a frame comes out whole, in order and unchanged, or not at all. An admitted frame never overwrites
// another.
module frame_queue_formal
  import switch_pkg::*;
(
  input logic       clk_i,
  input logic       s_valid_i,
  input logic       s_last_i,
  input logic [7:0] s_data_i,
  input logic       m_ready_i,
  input logic [7:0] follow_i
);

  localparam int unsigned Beats = 8, Longest = 3;

  logic       first = 1'b1;
  logic       dropped, m_valid, filling, empty, begins, admitted, takes, followed;
  logic [1:0] beats;  // of the frame that arrives
  logic [3:0] level;
  logic [7:0] in, out, data, was_follow, behind;
  beat_t      beat, m_beat;

  assign beat = '{error: 1'b0, last: s_last_i, extra: '0, data: 64'(s_data_i)};

  frame_queue #(.Beats(Beats), .Longest(Longest)) u_queue (
    .clk_i, .rst_ni(!first), .s_valid_i, .s_first_i(begins), .s_beat_i(beat), .dropped_o(dropped),
    .m_valid_o(m_valid), .m_ready_i, .m_beat_o(m_beat), .is_filling_o(filling), .is_empty_o(empty)
  );

  assign takes = s_valid_i && (begins ? !dropped : admitted);

  stream_scoreboard u_scoreboard (
    .clk_i, .rst_ni(!first), .in_i(takes), .in_data_i(s_data_i), .m_valid_i(m_valid), .m_ready_i,
    .m_data_i(m_beat.data[7:0]), .follow_i, .in_o(in), .out_o(out), .followed_o(followed), .data_o(data)
  );

  assign level  = u_queue.write_q - u_queue.read_q;
  assign behind = follow_i - out - 8'(m_valid);

  always_ff @(posedge clk_i) begin
    first      <= 1'b0;
    was_follow <= follow_i;
    if (first) begin
      begins   <= 1'b1;
      admitted <= 1'b0;
      beats    <= '0;
    end else if (s_valid_i) begin
      begins   <= s_last_i;
      admitted <= takes;
      beats    <= s_last_i ? '0 : beats + 1'b1;
    end
  end

  always_comb begin
    if (!first) begin
      assume (follow_i == was_follow);
      if (beats == 2'(Longest - 1)) assume (s_last_i);
      assert (beats < 2'(Longest));
      assert (begins == (beats == '0));
      assert (8'(level) == in - out - 8'(m_valid));
      assert (level <= 4'(Beats));
      if (takes) assert (level < 4'(Beats));
      // Induction starts in any state: the rest of an admitted frame fits, and so does a frame that is about to be
      // admitted.
      if (!begins && admitted) assert (level + 4'(Longest) - 4'(beats) <= 4'(Beats));
      if (u_queue.has_room_q) assert (level <= 4'(Beats - Longest));
      if (!begins) assert (u_queue.admits_q == admitted);
      if (followed && out == follow_i && m_valid) assert (m_beat.data[7:0] == data);
      if (followed && !(out == follow_i && m_valid))
        assert (u_queue.memory[3'(u_queue.read_q[2:0] + behind[2:0])][7:0] == data);
    end
  end

endmodule
