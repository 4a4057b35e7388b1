// aggregation_output_arbiter, two ports. The proof follows any two sums, one made after the other, at any port. If the
// port folds, each sum leaves for it once, and the first before the second; otherwise it is reported as lost. Every
// source waits for a bounded number of turns, and each turn ends. A repeated request, and a frame on a list at a port
// with buffer space, wait for three turns. A new sum waits for two turns for each frame on lists, and one more.
module aggregation_output_arbiter_formal
  import aggregation_pkg::*;
(
  input logic            clk_i,
  input logic [1:0][1:0] ports_i,        // by job
  input logic            sum_valid_i,
  input packet_t         sum_i,          // the lowest bits of its message: 1 and 2 are followed
  input logic            made_busy_i,
  input logic [1:0]      repeat_valid_i,
  input packet_t [1:0]   repeat_i,
  input logic            tag_valid_i,
  input generation_t     tag_generation_i,
  input logic [31:0]     tag_message_i,
  input logic [1:0]      has_room_i,
  input logic [1:0]      is_late_i,
  input logic            follow_i        // port
);

  localparam int unsigned SumsMax = 2, LaterMax = 2, Repeats = 2;
  localparam logic [1:0] Check = 2'd0, Look = 2'd1, Match = 2'd2, TxOut = 2'd3, Fresh = 2'd0, Repeat = 2'd1,
                         Later = 2'd2;

  logic                           first = 1'b1;
  logic                           was_follow, taken, is_repeat, chooses, fresh_waits, is_late_turn, sends_q;
  logic [1:0]                     state, from, from_next, targets, asked, checks, lost, repeat_asks, later_asks, chosen;
  packet_t                        taken_packet, sent;
  logic [7:0]                     ended_at, step, began_q;
  logic [1:0]                     sums_level;
  packet_t [SumsMax-1:0]          sums;                             // the oldest first
  logic [1:0][1:0]                is_empty, is_full, later_level;
  packet_t [1:0][LaterMax-1:0]    laters;
  logic [1:0][1:0]                repeat_level;
  packet_t [1:0][Repeats-1:0]     repeats;
  logic [3:0]                     on_lists, fresh_waited, repeat_waited, later_waited;  // turns of others
  logic                           repeat_is_second, later_is_second;  // the other port is in turn before it
  // State of the two followed sums at the followed port.
  logic [1:0]                     offered_q, gone_q, left_q, leaves, waits, flies, drops;
  logic [1:0][SumsMax-1:0]        waits_at;
  logic [1:0][LaterMax-1:0]       is_listed_at;

  aggregation_output_arbiter #(
    .Ports(2), .Jobs(2), .SumsMax(SumsMax), .LaterMax(LaterMax), .Repeats(Repeats), .Filling(2)
  ) u_arbiter (
    .clk_i, .rst_ni(!first), .ports_i, .sum_valid_i, .sum_i, .sum_taken_o(taken), .sum_taken_packet_o(taken_packet),
    .made_busy_i, .repeat_valid_i, .repeat_ready_o(), .repeat_i, .repeat_slot_o(), .is_filling_o(), .is_empty_o(),
    .tag_address_o(), .tag_valid_i, .tag_generation_i, .tag_message_i, .is_sending_o(), .sending_place_o(), .looks_o(),
    .checks_o(asked), .is_kept_o(), .packet_o(sent), .is_repeat_o(is_repeat), .slot_o(), .steps_o(), .step_o(step),
    .has_room_i,
    .is_late_i, .is_lost_o(lost), .result_read_o(), .result_address_o()
  );

  // The builders hear in the next cycle whether the sum is kept. It is known in this one.
  assign checks      = u_arbiter.is_kept ? asked : '0;
  assign state       = u_arbiter.state_q;
  assign from        = u_arbiter.from_q;
  assign from_next   = u_arbiter.from_d;
  // In Look, those that wait for the chosen frame's sum remain.
  assign targets     = state == Look ? u_arbiter.targets_d : u_arbiter.targets_q;
  assign chooses     = u_arbiter.chooses;
  assign ended_at    = sends_q ? u_arbiter.step_before_last + 8'd1 : began_q;
  assign sums_level  = u_arbiter.u_sums.write_q - u_arbiter.u_sums.read_q;
  for (genvar i = 0; i < SumsMax; i++) begin : gen_sum
    assign sums[i] = u_arbiter.u_sums.memory[1'(u_arbiter.u_sums.read_q[0] + 1'(i))];
  end
  for (genvar p = 0; p < 2; p++) begin : gen_list
    assign is_empty[p]    = {u_arbiter.gen_port[p].u_later.is_empty_q, u_arbiter.gen_port[p].u_repeats.is_empty_q};
    assign is_full[p]     = {u_arbiter.gen_port[p].u_later.is_full_q, u_arbiter.gen_port[p].u_repeats.is_full_q};
    assign later_level[p] = u_arbiter.gen_port[p].u_later.write_q - u_arbiter.gen_port[p].u_later.read_q;
    assign repeat_level[p] = u_arbiter.gen_port[p].u_repeats.write_q - u_arbiter.gen_port[p].u_repeats.read_q;
    for (genvar i = 0; i < LaterMax; i++) begin : gen_later
      assign laters[p][i] =
          u_arbiter.gen_port[p].u_later.memory[1'(u_arbiter.gen_port[p].u_later.read_q[0] + 1'(i))];
    end
    for (genvar i = 0; i < Repeats; i++) begin : gen_repeat
      assign repeats[p][i] =
          u_arbiter.gen_port[p].u_repeats.memory[1'(u_arbiter.gen_port[p].u_repeats.read_q[0] + 1'(i))];
    end
  end

  function automatic logic is_followed(packet_t packet, logic which);
    return packet.message[1:0] == (which ? 2'd2 : 2'd1);
  endfunction

  function automatic logic [27:0] name_of(packet_t packet);
    return {packet.job[0], packet.generation, packet.place, packet.message[7:0]};
  endfunction

  // --- Places of the followed sums ---
  for (genvar s = 0; s < 2; s++) begin : gen_followed
    assign leaves[s] = checks[follow_i] && !is_repeat && is_followed(sent, s);
    assign flies[s]  = (state == Look || state == Match) && from == Fresh && targets[follow_i] && is_followed(sent, s);
    assign waits[s]  = |waits_at[s];
    for (genvar i = 0; i < SumsMax; i++) begin : gen_at
      assign waits_at[s][i] = 2'(i) < sums_level && is_followed(sums[i], s);
    end
    for (genvar i = 0; i < LaterMax; i++) begin : gen_list_at
      assign is_listed_at[s][i] = 2'(i) < later_level[follow_i] && is_followed(laters[follow_i][i], s);
    end
    assign drops[s] = (taken && is_followed(taken_packet, s) && !ports_i[taken_packet.job[0]][follow_i]) ||
                      (flies[s] && state == Match && (leaves[s] || lost[follow_i])) ||
                      (u_arbiter.later_pop[follow_i] && is_listed_at[s][0]);

    always_ff @(posedge clk_i) begin
      if (first) begin
        {offered_q[s], gone_q[s], left_q[s]} <= '0;
      end else begin
        if (sum_valid_i && is_followed(sum_i, s)) offered_q[s] <= 1'b1;
        if (drops[s]) gone_q[s] <= 1'b1;
        if (leaves[s]) left_q[s] <= 1'b1;
      end
    end
  end

  // --- The source that has the turn ---
  assign is_late_turn = state != Check && from == Later;
  assign on_lists     = 4'(later_level[0]) + 4'(later_level[1]) -
                        (is_late_turn ? 4'(targets[0]) + 4'(targets[1]) : 4'd0);
  assign repeat_asks  = u_arbiter.repeat_asks;
  assign later_asks   = u_arbiter.later_asks;
  always_comb begin
    for (int p = 0; p < 2; p++) begin
      chosen[p] = chooses && u_arbiter.targets_d[p] &&
                  (from_next == Fresh || name_of(from_next == Later ? laters[p][0] : repeats[p][0]) ==
                                         name_of(u_arbiter.packet_d));
    end
  end
  assign repeat_is_second = follow_i ^ u_arbiter.u_repeat_turns.later_q[1];
  assign later_is_second  = follow_i ^ u_arbiter.u_later_turns.later_q[1];
  assign fresh_waits  = u_arbiter.sum_valid && !made_busy_i;

  always_ff @(posedge clk_i) begin
    first      <= 1'b0;
    was_follow <= follow_i;
    if (state == Match) begin
      began_q <= {7'd0, (u_arbiter.goes & ~is_late_i) == '0};
      sends_q <= checks != '0;
    end
    if (first) begin
      {fresh_waited, repeat_waited, later_waited} <= '0;
    end else begin
      if (!u_arbiter.sum_valid || taken) fresh_waited <= '0;
      else if (chooses && fresh_waits) fresh_waited <= fresh_waited + 4'd1;
      if (state == Check) begin
        if (!repeat_asks[follow_i] || (chosen[follow_i] && from_next == Repeat)) repeat_waited <= '0;
        else if (chooses) repeat_waited <= repeat_waited + 4'd1;
        if (!later_asks[follow_i] || (chosen[follow_i] && from_next == Later)) later_waited <= '0;
        else if (chooses) later_waited <= later_waited + 4'd1;
      end
    end
  end

  always_comb begin
    if (!first) begin
      assume (follow_i == was_follow);
      if (sums_level == 2'(SumsMax)) assume (!sum_valid_i);
      for (int s = 0; s < 2; s++) if (offered_q[s] && sum_valid_i) assume (!is_followed(sum_i, 1'(s)));
      if (!offered_q[0] && sum_valid_i) assume (!is_followed(sum_i, 1'b1));

      // Once, and in order.
      for (int s = 0; s < 2; s++) begin
        if (leaves[s]) assert (offered_q[s] && !left_q[s] && !gone_q[s]);
        if (drops[s]) assert (!gone_q[s]);
        if (u_arbiter.later_pop[follow_i] && is_listed_at[s][0]) assert (left_q[s] != lost[follow_i]);
      end
      if (leaves[1]) assert (gone_q[0]);
      // A turn ends, and the next begins.
      if (state == TxOut) assert (8'(step - began_q) <= 8'(ended_at - began_q));
      assert (fresh_waited <= 4'd9);
      assert (repeat_waited <= 4'd3);
      assert (later_waited <= 4'd3);

      // Induction starts in any state.
      assert (u_arbiter.ends_q == (state == TxOut && step == ended_at));
      if (state == TxOut && from != Fresh) assert (u_arbiter.is_kept_q == sends_q);
      assert (u_arbiter.u_sums.is_empty_q == (sums_level == '0));
      assert (u_arbiter.u_sums.is_full_q == (sums_level == 2'(SumsMax)));
      assert (sums_level <= 2'(SumsMax) && later_level[0] <= 2'(LaterMax) && later_level[1] <= 2'(LaterMax));
      if (state != Check) assert (from != 2'd3);
      for (int p = 0; p < 2; p++) begin
        assert (repeat_level[p] <= 2'(Repeats));
        assert (is_empty[p] == {later_level[p] == '0, repeat_level[p] == '0});
        assert (is_full[p] == {later_level[p] == 2'(LaterMax), repeat_level[p] == 2'(Repeats)});
      end
      if (offered_q[1]) assert (offered_q[0]);
      for (int s = 0; s < 2; s++) begin
        // The sum is in one of these places, or has left.
        assert (3'(waits_at[s][0]) + 3'(waits_at[s][1]) + 3'(flies[s]) + 3'(is_listed_at[s][0]) +
                3'(is_listed_at[s][1]) + 3'(gone_q[s]) == 3'(offered_q[s]));
        if (left_q[s] && !gone_q[s]) assert (state == TxOut && is_late_turn && targets[follow_i] && is_listed_at[s][0]);
        if (state == TxOut && is_late_turn && targets[follow_i] && is_listed_at[s][0]) assert (left_q[s] == sends_q);
      end
      if (waits[0] && offered_q[1]) assert (waits_at == 4'b1001);
      if (flies[0] && offered_q[1]) assert (waits[1]);
      if (|is_listed_at[0]) assert (!is_listed_at[1][0]);
      if (left_q[1]) assert (gone_q[0]);
      if (is_late_turn) begin
        assert (targets != '0);
        for (int p = 0; p < 2; p++) if (targets[p]) begin
          assert (later_level[p] != '0 && laters[p][0].message[7:0] == sent.message[7:0]);
        end
      end
      if (from == Fresh && (state == Look || state == Match)) assert (fresh_waited == '0);
      assert (u_arbiter.u_repeat_turns.later_q inside {2'b00, 2'b10});
      assert (u_arbiter.u_later_turns.later_q inside {2'b00, 2'b10});
      assert (6'(repeat_waited) + 6'({repeat_is_second, 1'b0}) + 6'(!u_arbiter.was_new_q) <= 6'd3);
      assert (6'(later_waited) + 6'({later_is_second, 1'b0}) + 6'(u_arbiter.was_new_q) <= 6'd3);
      assert (6'(fresh_waited) + 6'(on_lists) + 6'(on_lists) + 6'(u_arbiter.was_new_q) <= 6'd9);
    end
  end

endmodule
