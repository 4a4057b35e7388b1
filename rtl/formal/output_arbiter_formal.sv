// output_arbiter, two ports: frames leave whole. A beat that leaves is an accepted beat of one source, unchanged. A
// source with a frame waits for a bounded number of turns: for all pause frames, and for twice the other sources of its
// kind and one.
module output_arbiter_formal
  import switch_pkg::*;
(
  input logic       clk_i,
  input logic [1:0] queue_valid_i,
  input logic [1:0] sum_valid_i,
  input logic       notice_valid_i,
  input logic       pause_valid_i,
  input logic [5:0] last_i,          // of queues, sums, notice, pause
  input logic       m_ready_i,
  input logic [2:0] follow_i         // one of queues, sums, notice
);

  logic        first = 1'b1;
  logic        m_valid, inside_q, is_sum;
  logic [5:0]  valid, was_valid, ready, was_ready, taken, current, chosen;
  logic [3:0]  waited;               // frames that began while the followed source had one, without pauses
  logic [2:0]  was_follow, ahead;   // ahead: sources of its kind whose turn is before its own
  logic [1:0]  next;
  beat_t       m_beat;
  beat_t [5:0] beats;
  departure_t  departure;

  assign valid = {pause_valid_i, notice_valid_i, sum_valid_i, queue_valid_i};

  for (genvar i = 0; i < 6; i++) begin : gen_beat
    assign beats[i] = '{error: 1'b0, last: last_i[i], extra: '0, data: 64'(i)};
  end

  output_arbiter #(.Ports(2)) u_arbiter (
    .clk_i, .rst_ni(!first), .queue_valid_i, .queue_ready_o(ready[1:0]), .queue_beat_i(beats[1:0]),
    .notice_valid_i, .notice_ready_o(ready[4]), .notice_beat_i(beats[4]), .sum_valid_i, .sum_ready_o(ready[3:2]),
    .sum_beat_i(beats[3:2]), .sums_end_i(1'b0), .pause_valid_i, .pause_ready_o(ready[5]), .pause_beat_i(beats[5]),
    .m_valid_o(m_valid), .m_ready_i, .m_beat_o(m_beat), .departure_o(departure)
  );

  assign taken   = valid & ready;
  assign chosen  = u_arbiter.is_pause ? 6'b100000 : u_arbiter.is_sum ? {2'd0, u_arbiter.sum_grant, 2'd0} :
                   {1'b0, u_arbiter.queue_grant[2], 2'd0, u_arbiter.queue_grant[1:0]};
  assign is_sum  = follow_i == 3'd2 || follow_i == 3'd3;

  always_comb begin
    current = '0;
    if (u_arbiter.source_q.of_queue)  current |= 6'd1 << u_arbiter.index_q;
    if (u_arbiter.source_q.of_sum)    current |= 6'd4 << u_arbiter.index_q;
    if (u_arbiter.source_q.of_notice) current |= 6'b010000;
    if (u_arbiter.source_q.of_pause)  current |= 6'b100000;
    next = u_arbiter.u_queues.later_q[1] ? 2'd1 : u_arbiter.u_queues.later_q[2] ? 2'd2 : 2'd0;
    if (is_sum) begin
      ahead = {2'd0, follow_i[0] ^ u_arbiter.u_sums.later_q[1]};
    end else begin
      ahead = (follow_i == 3'd4 ? 3'd2 : 3'(follow_i[0])) - 3'(next);
      if (ahead[2]) ahead += 3'd3;
    end
  end

  always_ff @(posedge clk_i) begin
    first      <= 1'b0;
    was_follow <= follow_i;
    was_valid  <= valid;
    was_ready  <= ready;
    if (first) begin
      inside_q <= 1'b0;
      waited   <= '0;
    end else begin
      if (m_valid && m_ready_i) inside_q <= !m_beat.last;
      if (!valid[follow_i] || (u_arbiter.starts && chosen[follow_i])) begin
        waited <= '0;
      end else if (u_arbiter.starts && !chosen[5]) begin
        waited <= waited + 1'b1;
      end
    end
  end

  always_comb begin
    if (!first) begin
      assume (follow_i == was_follow && follow_i < 3'd5);
      assume ((was_valid & ~was_ready & ~valid) == '0);  // an offered beat stays until it is accepted
      // A beat leaves if and only if this beat is accepted.
      assert ((taken != '0) == (m_valid && m_ready_i));
      assert ((taken & (taken - 1'b1)) == '0);
      for (int unsigned i = 0; i < 6; i++) if (taken[i]) assert (m_beat == beats[i]);
      if (inside_q) assert (u_arbiter.is_sending_q);
      if (taken != '0) assert (taken == current);
      if (u_arbiter.starts && inside_q) assert (1'b0);
      assert (waited <= (is_sum ? 4'd3 : 4'd5));
      // Induction starts in any state: each turn brings the followed source's turn nearer, and sums and others
      // alternate.
      assert (!u_arbiter.is_ending_q);
      if (u_arbiter.is_sending_q) assert (u_arbiter.source_q inside {4'b1000, 4'b0100, 4'b0010, 4'b0001});
      if (u_arbiter.is_sending_q && (u_arbiter.source_q.of_queue || u_arbiter.source_q.of_sum)) begin
        assert (u_arbiter.chosen_q == 2'd1 << u_arbiter.index_q);
      end
      assert (u_arbiter.u_queues.later_q inside {3'b000, 3'b100, 3'b110});
      assert (u_arbiter.u_sums.later_q inside {2'b00, 2'b10});
      assert (waited + 4'(2 * ahead) + 4'(u_arbiter.was_sum_q == is_sum) <= (is_sum ? 4'd3 : 4'd5));
    end
  end

endmodule
