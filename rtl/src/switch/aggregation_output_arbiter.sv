// Fig. 15: which sum is sent next, and to whom. Weighted round robin: every second turn is that of sums just made, which
// all their ports send at once; the others are shared by frames that came again. Where a contribution was lost all NICs
// go back to it, and send what follows again: so ports whose next such frames ask for the same sum get it in one turn.
//
// A port that has no room when the others send a sum has it put on a list of its own. Frames on lists go before newer
// sums, and all ports that wait for the same sum get it in the same turn. So a port is sent its sums in their order,
// and a port that is slow for a while costs the others one turn.
//
//   Check   the next
//   Look    the headers' buffers say what lies there, the Aggregation Status Buffer which sum is kept; which ports
//           wait for the same one?
//   Match   is it still that one? Ports without room are listed
//   TxOut   builders put their frames together, in step. Frames leave their lists in its last cycle; it has no other if
//           nothing is sent
module aggregation_output_arbiter
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Ports = 8,
  parameter int unsigned Jobs  = 1,
  parameter int unsigned SumsMax    = 8,
  parameter int unsigned LaterMax   = 32,
  parameter int unsigned Repeats    = RepeatsMax,
  parameter int unsigned Filling    = 4,  // so many on a port's lists: its worker is to be paused
  localparam int unsigned SlotBits            = $clog2(Repeats),
  localparam int unsigned PlaceAddressWidth   = PlaceWidth + $clog2(Jobs),
  localparam int unsigned PayloadAddressWidth = PlaceAddressWidth + $clog2(PayloadBeats)
) (
  input  logic                            clk_i,
  input  logic                            rst_ni,

  input  logic [Jobs-1:0][Ports-1:0]      ports_i,         // that fold

  // Sums just made; never more than there is room for.
  input  logic                            sum_valid_i,
  input  packet_t                         sum_i,
  output logic                            sum_taken_o,
  output packet_t                         sum_taken_packet_o,
  input  logic                            made_busy_i,     // the one taken before is not yet known as kept

  // Frames that came again.
  input  logic [Ports-1:0]                repeat_valid_i,
  output logic [Ports-1:0]                repeat_ready_o,  // for the next
  input  packet_t [Ports-1:0]             repeat_i,
  output logic [Ports-1:0][SlotBits-1:0] repeat_slot_o,  // where the next one's header goes

  // Both lists of a port.
  output logic [Ports-1:0]                is_filling_o,
  output logic [Ports-1:0]                is_empty_o,

  // Which sum is kept.
  output logic [PlaceAddressWidth-1:0]    tag_address_o,
  input  logic                            tag_valid_i,
  input  generation_t                       tag_generation_i,
  input  logic [31:0]                     tag_message_i,
  output logic                            is_sending_o,
  output logic [PlaceAddressWidth-1:0]    sending_place_o,

  // Builders.
  output logic                            looks_o,
  output logic [Ports-1:0]                checks_o,
  output logic                            is_kept_o,       // in the cycle after: else nothing is sent
  output packet_t                         packet_o,
  output logic                            is_repeat_o,
  output logic [Ports-1:0][SlotBits-1:0] slot_o,         // of the repeated frame's header
  output logic                            steps_o,
  output logic [7:0]                      step_o,
  input  logic [Ports-1:0]                has_room_i,
  input  logic [Ports-1:0]                is_late_i,       // has nothing to do at step 0
  output logic [Ports-1:0]                is_lost_o,       // never sent: a list was full, or the sum is gone

  output logic                            result_read_o,   // two cycles ahead
  output logic [PayloadAddressWidth-1:0]  result_address_o
);

  localparam int unsigned JobBits  = Jobs > 1 ? $clog2(Jobs) : 1;
  localparam int unsigned PortBits = $clog2(Ports);
  localparam int unsigned LevelWidth = $clog2(Repeats + LaterMax + 1);
  localparam int unsigned NameBits   = JobBits + GenerationWidth + PlaceWidth + 8;
  localparam logic [7:0] Tail = 8'd2;  // steps in which the last beats are joined

  typedef enum logic [1:0] {Check, Look, Match, TxOut} state_e;
  typedef enum logic [1:0] {Fresh, Repeat, Later} from_e;

  state_e                          state_q, state_d;
  from_e                           from_q, from_d;
  packet_t                         packet_q, packet_d, sum;
  logic [Ports-1:0]                targets_q, targets_d;
  logic [7:0]                      step_q, joint, step_before_last;
  logic                            sum_valid, was_new_q, chooses, ends_q, is_same_sum, is_kept, is_kept_q;
  logic                            sum_ready_unused;
  // Of a sum. Frames that wait for one place are never 256 messages apart, and builders compare all of the number.
  logic [Ports-1:0][NameBits-1:0]  first_name;  // of the first frame on the list at work
  logic [NameBits-1:0]             sent_name;
  logic [Ports-1:0]                repeat_asks, later_asks, repeat_turn, later_turn, goes;
  logic [Ports-1:0]                repeat_valid, later_valid, later_ready, repeat_pop, later_pop, later_push;
  packet_t [Ports-1:0]             repeats, laters;

  // --- Lists ---
  stream_queue #(
    .Width($bits(packet_t)),
    .Depth(SumsMax)
  ) u_sums (
    .clk_i,
    .rst_ni,
    .s_valid_i(sum_valid_i),
    .s_ready_o(sum_ready_unused),
    .s_data_i (sum_i),
    .m_valid_o(sum_valid),
    .m_ready_i(sum_taken_o),
    .m_data_o (sum)
  );

  for (genvar p = 0; p < Ports; p++) begin : gen_port
    stream_queue #(
      .Width($bits(packet_t)),
      .Depth(Repeats)
    ) u_repeats (
      .clk_i,
      .rst_ni,
      .s_valid_i(repeat_valid_i[p]),
      .s_ready_o(repeat_ready_o[p]),
      .s_data_i (repeat_i[p]),
      .m_valid_o(repeat_valid[p]),
      .m_ready_i(repeat_pop[p]),
      .m_data_o (repeats[p])
    );

    stream_queue #(
      .Width($bits(packet_t)),
      .Depth(LaterMax)
    ) u_later (
      .clk_i,
      .rst_ni,
      .s_valid_i(later_push[p]),
      .s_ready_o(later_ready[p]),
      .s_data_i (packet_q),
      .m_valid_o(later_valid[p]),
      .m_ready_i(later_pop[p]),
      .m_data_o (laters[p])
    );

    // Headers lie in the list's order; a place is free again when its frame has been sent.
    logic [SlotBits-1:0] slot_write_q, slot_read_q;
    logic [NameBits-1:0] repeat_name, later_name;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        slot_write_q <= '0;
        slot_read_q  <= '0;
      end else begin
        if (repeat_valid_i[p] && repeat_ready_o[p]) slot_write_q <= slot_write_q + 1'b1;
        if (repeat_pop[p]) slot_read_q <= slot_read_q + 1'b1;
      end
    end
    assign repeat_slot_o[p] = slot_write_q;
    assign slot_o[p]        = slot_read_q;

    assign repeat_name   = {repeats[p].job[JobBits-1:0], repeats[p].generation, repeats[p].place,
                            repeats[p].message[7:0]};
    assign later_name    = {laters[p].job[JobBits-1:0], laters[p].generation, laters[p].place,
                            laters[p].message[7:0]};
    assign first_name[p] = from_q == Later ? later_name : repeat_name;

    logic [LevelWidth-1:0] level_q;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        level_q <= '0;
      end else begin
        level_q <= level_q + LevelWidth'(repeat_valid_i[p] && repeat_ready_o[p]) + LevelWidth'(later_push[p]) -
                   LevelWidth'(repeat_pop[p] || later_pop[p]);
      end
    end
    assign is_filling_o[p] = level_q >= LevelWidth'(Filling);
    assign is_empty_o[p]   = level_q <= LevelWidth'(1);
  end

  // --- Check: whose turn is it? ---
  assign repeat_asks = repeat_valid & has_room_i & ~later_valid;
  assign later_asks  = later_valid & has_room_i;

  round_robin #(
    .Requests(Ports)
  ) u_repeat_turns (
    .clk_i,
    .rst_ni,
    .request_i(repeat_asks),
    .take_i   (chooses && from_d == Repeat),
    .grant_o  (repeat_turn)
  );

  round_robin #(
    .Requests(Ports)
  ) u_later_turns (
    .clk_i,
    .rst_ni,
    .request_i(later_asks),
    .take_i   (chooses && from_d == Later),
    .grant_o  (later_turn)
  );

  always_comb begin
    from_d = Repeat;
    if (repeat_turn == '0 || !was_new_q) begin
      if (later_turn != '0) begin
        from_d = Later;
      end else if (sum_valid && !made_busy_i) begin
        from_d = Fresh;
      end
    end
  end

  assign chooses            = state_q == Check && (from_d != Repeat || repeat_turn != '0);
  assign sum_taken_o        = chooses && from_d == Fresh;
  assign sum_taken_packet_o = sum;

  packet_t repeat_first, later_first;

  selector #(.Inputs(Ports), .Width($bits(packet_t))) u_repeat_first (
    .index_i(PortBits'(index_of(32'(repeat_turn)))), .data_i(repeats), .data_o(repeat_first)
  );
  selector #(.Inputs(Ports), .Width($bits(packet_t))) u_later_first (
    .index_i(PortBits'(index_of(32'(later_turn)))), .data_i(laters), .data_o(later_first)
  );

  assign packet_d = from_d == Fresh ? sum : from_d == Later ? later_first : repeat_first;

  // All that ask, and then those that ask for this one.
  always_comb begin
    for (int unsigned p = 0; p < Ports; p++) begin
      if (state_q == Check) begin
        unique case (from_d)
          Fresh:   targets_d[p] = ports_i[sum.job[JobBits-1:0]][p];
          Later:   targets_d[p] = later_asks[p];
          default: targets_d[p] = repeat_asks[p];
        endcase
      end else begin
        targets_d[p] = targets_q[p] && (state_q != Look || from_q == Fresh || first_name[p] == sent_name);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    targets_q <= targets_d;
    if (chooses) begin
      from_q   <= from_d;
      packet_q <= packet_d;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      was_new_q <= 1'b0;
    end else if (chooses) begin
      was_new_q <= from_d != Repeat;
    end
  end

  // --- Look, Match ---
  assign tag_address_o   = PlaceAddressWidth'({packet_q.job, packet_q.place});
  assign sending_place_o = tag_address_o;
  assign sent_name       = {packet_q.job[JobBits-1:0], packet_q.generation, packet_q.place, packet_q.message[7:0]};
  assign is_sending_o    = state_q != Check;
  assign looks_o         = state_q == Look;
  assign is_same_sum     = tag_generation_i == packet_q.generation && tag_message_i == packet_q.message;
  assign is_kept         = from_q == Fresh || (tag_valid_i && is_same_sum);
  assign goes            = from_q == Fresh ? targets_q & has_room_i & ~later_valid : targets_q;
  assign checks_o        = state_q == Match ? goes : '0;
  assign is_kept_o       = is_kept_q;
  assign later_push      = state_q == Match && from_q == Fresh ? targets_q & ~goes & later_ready : '0;
  always_comb begin
    is_lost_o = '0;
    if (state_q == Match && from_q == Fresh) is_lost_o = targets_q & ~goes & ~later_ready;
    if (ends_q && !is_kept_q) is_lost_o = targets_q;
  end
  assign packet_o        = packet_q;
  assign is_repeat_o     = from_q == Repeat;

  // --- TxOut: at step `joint` the header's partial beat is read, so the sum's first one step before ---
  assign joint            = packet_q.place[6:0] == '0 ? 8'd13 : 8'd9;
  assign step_before_last = joint + 8'(packet_q.last_word >> 1) + Tail - 8'd1;
  assign steps_o          = state_q == TxOut && is_kept_q;
  assign step_o           = step_q;
  assign result_read_o    = steps_o;
  assign result_address_o = {tag_address_o, 7'(step_q - joint + 8'd1)};

  always_comb begin
    repeat_pop = ends_q && from_q == Repeat ? targets_q : '0;
    later_pop  = ends_q && from_q == Later ? targets_q : '0;
  end

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      Check:   if (chooses) state_d = Look;
      Look:    state_d = Match;
      Match:   state_d = TxOut;
      TxOut:   if (ends_q) state_d = Check;
      default: state_d = Check;
    endcase
  end

  // That a turn ends is known a cycle before: all that follows from it would else come after long comparisons.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Check;
      ends_q  <= 1'b0;
    end else begin
      state_q <= state_d;
      ends_q  <= (state_q == Match && (!is_kept || goes == '0)) ||
                 (state_q == TxOut && !ends_q && step_q == step_before_last);
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Match) is_kept_q <= is_kept;
  end

  always_ff @(posedge clk_i) begin
    step_q <= step_q + 8'd1;
    if (state_q == Match) step_q <= {7'd0, (goes & ~is_late_i) == '0};
  end

endmodule
