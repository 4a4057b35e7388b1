// Fig. 15: which sum is sent next, and to whom. Weighted round robin: every second turn is that of sums just made, which
// all their ports send at once; the others are shared by frames that came again, and by sums that a port had no room
// for when the others sent them. Whoever has no room waits in a list of its own, and for nobody else.
//
//   Check   the next
//   Look    the headers' buffers say what lies there, the Aggregation Status Buffer which sum is kept
//   Match   is it still that one? Ports without room are listed
//   TxOut   builders put their frames together, in step
module aggregation_output_arbiter
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Ports = 8,
  parameter int unsigned Jobs  = 1,
  parameter int unsigned SumsMax    = 8,
  parameter int unsigned LaterMax   = 16,
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

  // Frames that came again.
  input  logic [Ports-1:0]                repeat_valid_i,
  output logic [Ports-1:0]                repeat_ready_o,  // for the next
  input  packet_t [Ports-1:0]             repeat_i,
  output logic [Ports-1:0][RepeatBits-1:0] repeat_slot_o,  // where the next one's header goes

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
  output packet_t                         packet_o,
  output logic                            is_repeat_o,
  output logic [RepeatBits-1:0]           slot_o,          // of the repeated frame's header
  output logic                            steps_o,
  output logic [7:0]                      step_o,
  input  logic [Ports-1:0]                has_room_i,
  input  logic [Ports-1:0]                is_late_i,       // has nothing to do at step 0
  output logic [Ports-1:0]                is_lost_o,       // a list was full: the frame is never sent

  output logic                            result_read_o,   // two cycles ahead
  output logic [PayloadAddressWidth-1:0]  result_address_o
);

  localparam int unsigned PortBits = $clog2(Ports);
  localparam int unsigned JobBits  = Jobs > 1 ? $clog2(Jobs) : 1;
  localparam logic [7:0] Tail = 8'd2;  // steps in which the last beats are joined

  typedef enum logic [1:0] {Check, Look, Match, TxOut} state_e;
  typedef enum logic [1:0] {Fresh, Repeat, Later} from_e;

  state_e                          state_q, state_d;
  from_e                           from_q, from_d;
  packet_t                         packet_q, packet_d, sum;
  logic [Ports-1:0]                targets_q, targets_d;
  logic [7:0]                      step_q, joint, result_beat, last_step;
  logic                            sum_valid, any_other, was_fresh_q, takes_fresh, chooses, ends, is_kept;
  logic                            sum_ready_unused;
  logic [2*Ports-1:0]              other;       // one bit
  logic [Ports-1:0]                other_port;  // one bit
  logic [PortBits-1:0]             port, port_q;
  logic [Ports-1:0]                repeat_valid, later_valid, later_ready, repeat_pop, later_pop, later_push;
  packet_t [Ports-1:0]             repeats, laters;
  logic [Ports-1:0]                folding;
  logic [Ports-1:0][RepeatBits-1:0] slots;

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
      .Depth(RepeatsMax)
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
    logic [RepeatBits-1:0] slot_write_q, slot_read_q;
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
    assign slots[p]         = slot_read_q;
  end

  // --- Check: whose turn is it? ---
  round_robin #(
    .Requests(2 * Ports)
  ) u_others (
    .clk_i,
    .rst_ni,
    .request_i({later_valid & has_room_i, repeat_valid & has_room_i}),
    .take_i   (chooses && !takes_fresh),
    .grant_o  (other)
  );
  assign any_other = |other;
  assign other_port = other[2*Ports-1:Ports] | other[Ports-1:0];

  assign folding     = ports_i[sum.job[JobBits-1:0]];
  assign takes_fresh = sum_valid && !(any_other && was_fresh_q);
  assign chooses     = state_q == Check && (sum_valid || any_other);
  assign sum_taken_o = chooses && takes_fresh;
  assign port        = PortBits'(index_of(32'(other_port)));

  always_comb begin
    targets_d = other_port;
    from_d    = |other[2*Ports-1:Ports] ? Later : Repeat;
    packet_d  = from_d == Later ? laters[port] : repeats[port];
    if (takes_fresh) begin
      targets_d = folding;
      from_d    = Fresh;
      packet_d  = sum;
    end
  end

  always_ff @(posedge clk_i) begin
    if (chooses) begin
      targets_q <= targets_d;
      from_q    <= from_d;
      packet_q  <= packet_d;
      port_q    <= port;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      was_fresh_q <= 1'b0;
    end else if (chooses) begin
      was_fresh_q <= takes_fresh;
    end
  end

  // --- Look, Match ---
  assign tag_address_o   = PlaceAddressWidth'({packet_q.job, packet_q.place});
  assign sending_place_o = tag_address_o;
  assign is_sending_o    = state_q != Check;
  assign looks_o         = state_q == Look;
  assign is_kept         = tag_valid_i && tag_generation_i == packet_q.generation && tag_message_i == packet_q.message;
  assign checks_o        = state_q == Match && is_kept ? targets_q & has_room_i : '0;
  assign later_push      = state_q == Match && is_kept ? targets_q & ~has_room_i & later_ready : '0;
  assign is_lost_o       = state_q == Match && is_kept ? targets_q & ~has_room_i & ~later_ready : '0;
  assign packet_o        = packet_q;
  assign is_repeat_o     = from_q == Repeat;
  assign slot_o          = slots[port_q];

  // --- TxOut: at step `joint` the header's partial beat is read, so the sum's first one step before ---
  assign joint         = packet_q.place[6:0] == '0 ? 8'd13 : 8'd9;
  assign result_beat   = step_q - joint + 8'd1;
  assign last_step     = joint + 8'((packet_q.words - 9'd1) >> 1) + Tail;
  assign steps_o       = state_q == TxOut;
  assign step_o        = step_q;
  assign result_read_o = steps_o;
  assign result_address_o = {tag_address_o, result_beat[6:0]};
  assign ends          = (state_q == TxOut && step_q == last_step) || (state_q == Match && !is_kept);

  always_comb begin
    repeat_pop = '0;
    later_pop  = '0;
    repeat_pop[port_q] = ends && from_q == Repeat;
    later_pop[port_q]  = ends && from_q == Later;
  end

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      Check:   if (chooses) state_d = Look;
      Look:    state_d = Match;
      Match:   state_d = TxOut;
      TxOut:   state_d = TxOut;
      default: state_d = Check;
    endcase
    if (ends) state_d = Check;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Check;
    end else begin
      state_q <= state_d;
    end
  end

  always_ff @(posedge clk_i) begin
    step_q <= step_q + 8'd1;
    if (state_q == Match) step_q <= {7'd0, (targets_q & ~is_late_i) == '0};
  end

endmodule
