// The Aggregation Status Buffer, and its CHECK of Fig. 14: what is in each place, and what a packet comes to there. A
// place gathers one message's packet at a time, known by the message's number, and knows which message's sum it keeps;
// so what is late, doubled or from a former life never reaches a sum, and no column is ever cleared for the next
// message or epoch. The law is RoceJob::contribute's.
//
// One question every three cycles: the buffer is read (A), what lies there is compared with the packet (B), the answer is
// given and the place written (C). Handlers are asked in turn; a sum that is sent goes first, the search for aged places
// last. The paper has a Frame Status Buffer a port besides, which knows whether a frame has come, but not whether its
// sum has been made.
module aggregation_status
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Ports = 8,
  parameter int unsigned Jobs  = 1,
  localparam int unsigned AddressWidth = PlaceWidth + $clog2(Jobs),
  localparam int unsigned JobBits      = Jobs > 1 ? $clog2(Jobs) : 1
) (
  input  logic                       clk_i,
  input  logic                       rst_ni,

  input  logic                       tick_i,        // 1024 cycles
  input  logic [31:0]                age_limit_i,   // ticks
  output logic                       aged_o,        // a place was released

  // The Job Table.
  input  generation_t [Jobs-1:0]        generation_i,
  input  logic [Jobs-1:0][Ports-1:0] ports_i,       // that fold

  // Handlers.
  input  logic                       is_coming_i,   // one may ask within two cycles: no search for aged places begins
  input  logic [Ports-1:0]           valid_i,
  input  packet_t [Ports-1:0]        packet_i,
  input  logic [Ports-1:0]           is_early_i,    // what would the answer be? Nothing changes
  input  logic [Ports-1:0]           is_bad_i,      // a contribution that cannot be folded: a cycle after it asks first
  output logic [Ports-1:0]           done_o,
  output verdict_e                   verdict_o,
  output logic [JobBits-1:0]         job_o,
  output logic [Ports-1:0]           arrived_o,     // with VerdictWaiting: who is here, and that it is not all
  output logic                       is_missing_o,

  // A place is complete: to be folded.
  output logic                       fold_valid_o,
  input  logic                       fold_ready_i,
  output packet_t                    fold_o,
  output logic                       early_valid_o,  // ... or will be, by the early contribution `folded_o`
  output logic                       judged_o,       // the contribution `fold_o`, whatever the answer is

  // Its sum is sent, and kept from now on.
  input  logic                       made_valid_i,
  output logic                       made_ready_o,
  input  packet_t                    made_i,
  output logic                       folded_valid_o,
  output packet_t                    folded_o,

  // Which sum a place keeps, a cycle after it is asked; none from when it is complete until it is sent.
  input  logic [AddressWidth-1:0]    tag_address_i,
  output logic                       tag_valid_o,
  output generation_t                  tag_generation_o,
  output logic [31:0]                tag_message_o
);

  localparam int unsigned PortBits = $clog2(Ports);

  typedef enum logic [1:0] {AskJudge, AskMade, AskAge} ask_e;

  typedef struct packed {
    generation_t      generation;
    logic [Ports-1:0] arrived;   // all: it waits to be folded, or its sum to be sent
    logic [31:0]      gathers;   // message
    logic [31:0]      since;     // ticks
    logic             has_sum;
    logic [31:0]      sum_of;    // message
  } place_t;

  // A place's two messages beside the packet's.
  typedef struct packed {
    logic is_kept, is_older_than_kept;  // the message whose sum is kept
    logic is_gathered, is_older_than_gathered;
  } compared_t;

  typedef struct packed {
    logic     enters;
    logic     completes;  // the place
    verdict_e verdict;
  } judged_t;

  typedef struct packed {
    logic        is_there;
    generation_t generation;
    logic [31:0] message;
  } tag_t;

  logic                    is_b_q, is_c_q, is_clearing_q, is_free, starts;
  ask_e                    ask_q, ask_d;
  packet_t                 packet_q, packet_d;
  logic [Ports-1:0]        turn, port_q;  // one bit
  logic [AddressWidth-1:0] address_d, address_q, clear_q, age_q;
  place_t                  read, there_q, now, then_;
  compared_t               compared_q;
  logic                    writes, is_bad_q, is_early_q, is_current, is_former, is_old, completes;
  judged_t                 judged;
  logic [31:0]             ticks_q;
  verdict_e                verdict;
  tag_t                    tag;

  // --- A: select the port that asks ---
  round_robin #(
    .Requests(Ports)
  ) u_turns (
    .clk_i,
    .rst_ni,
    .request_i(valid_i & ~done_o),
    .take_i   (starts && ask_d == AskJudge),
    .grant_o  (turn)
  );

  assign is_free      = !is_b_q && !is_c_q && !is_clearing_q;
  assign starts       = is_free && !(ask_d == AskAge && is_coming_i);
  assign made_ready_o = is_free;

  always_comb begin
    packet_d = packet_i[PortBits'(index_of(32'(turn)))];
    ask_d    = AskJudge;
    if (made_valid_i) begin
      packet_d = made_i;
      ask_d    = AskMade;
    end else if (turn == '0 || !fold_ready_i) begin
      packet_d       = '0;
      packet_d.job   = JobWidth'(32'(age_q) >> PlaceWidth);
      packet_d.place = age_q[PlaceWidth-1:0];
      ask_d          = AskAge;
    end
  end
  assign address_d = AddressWidth'({packet_d.job, packet_d.place});

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_b_q  <= 1'b0;
      is_c_q  <= 1'b0;
      age_q   <= '0;
      ticks_q <= '0;
    end else begin
      is_b_q <= starts;
      is_c_q <= is_b_q;
      if (starts && ask_d == AskAge) age_q <= age_q + 1'b1;
      if (tick_i) ticks_q <= ticks_q + 32'd1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (starts) begin
      ask_q      <= ask_d;
      port_q     <= turn;
      packet_q   <= packet_d;
      is_early_q <= |(is_early_i & turn);
      address_q  <= address_d;
    end
    is_bad_q <= |(is_bad_i & port_q);
  end

  simple_dual_port_ram #(
    .Width($bits(place_t)),
    .Depth(Jobs * Places)
  ) u_places (
    .clk_i,
    .write_i        (writes || is_clearing_q),
    .write_address_i(is_clearing_q ? clear_q : address_q),
    .write_data_i   (is_clearing_q ? '0 : then_),
    .read_i         (starts),
    .read_address_i (address_d),
    .read_data_o    (read)
  );

  // --- B: comparisons ---
  always_ff @(posedge clk_i) begin
    there_q    <= read;
    compared_q <= '{is_kept:                read.sum_of == packet_q.message,
                    is_older_than_kept:     is_older(packet_q.message, read.sum_of),
                    is_gathered:            read.gathers == packet_q.message,
                    is_older_than_gathered: is_older(packet_q.message, read.gathers)};
  end

  // --- C: the answer ---
  assign is_current = packet_q.generation == generation_i[packet_q.job[JobBits-1:0]];
  assign is_former  = there_q.generation != generation_i[packet_q.job[JobBits-1:0]];
  always_comb begin
    // A place of a former generation is empty. Only its two flags say so.
    now         = there_q;
    now.arrived = is_former ? '0 : there_q.arrived;
    now.has_sum = there_q.has_sum && !is_former;
  end
  assign is_old     = now.arrived != '0 && now.arrived != ports_i[packet_q.job[JobBits-1:0]] &&
                      ticks_q - now.since > age_limit_i;

  // The answer to a contribution in such a place. Each reason against it is found by itself, not one after the other.
  function automatic judged_t judged_in(logic [Ports-1:0] arrived, logic has_sum);
    logic is_answered, is_passed, is_other, is_here, is_all;
    is_answered = has_sum && compared_q.is_kept;
    is_passed   = has_sum && compared_q.is_older_than_kept;
    is_other    = arrived != '0 && !compared_q.is_gathered;
    is_here     = |(arrived & port_q);
    is_all      = (arrived | port_q) == ports_i[packet_q.job[JobBits-1:0]];

    judged_in.enters    = !is_answered && !is_passed && !is_other && !is_here && !is_bad_q;
    judged_in.completes = judged_in.enters && is_all;
    judged_in.verdict   = is_all ? VerdictFolded : VerdictKept;
    if (is_answered) judged_in.verdict = VerdictAnswered;
    else if (is_passed) judged_in.verdict = VerdictStale;
    else if (is_other) judged_in.verdict = compared_q.is_older_than_gathered ? VerdictStale : VerdictBusy;
    else if (is_here) judged_in.verdict = VerdictWaiting;
    else if (is_bad_q) judged_in.verdict = VerdictBlock;
  endfunction

  // Both answers are there when it is known whether the place is of a former generation, and so empty.
  assign judged  = is_former ? judged_in('0, 1'b0) : judged_in(there_q.arrived, there_q.has_sum);
  assign verdict = is_current ? judged.verdict : VerdictEpoch;

  always_comb begin
    then_            = now;
    then_.generation = packet_q.generation;
    writes           = 1'b0;
    completes        = 1'b0;
    unique case (ask_q)
      AskJudge: begin
        writes        = is_c_q && is_current && judged.enters && !is_early_q;
        completes     = is_c_q && is_current && judged.completes && !is_early_q;
        then_.arrived = now.arrived | port_q;
        then_.gathers = packet_q.message;
        if (now.arrived == '0) then_.since = ticks_q;
        // The sum kept here is about to be overwritten.
        if (completes) then_.has_sum = 1'b0;
      end
      AskMade: begin
        writes        = is_c_q && is_current;
        then_.arrived = '0;
        then_.has_sum = 1'b1;
        then_.sum_of  = packet_q.message;
      end
      AskAge: begin
        // Entries of a former epoch are removed before its number comes again.
        writes           = is_c_q && (is_old || is_former);
        then_.generation = generation_i[packet_q.job[JobBits-1:0]];
        then_.arrived    = '0;
      end
      default: writes = 1'b0;
    endcase
  end

  // Answers leave from registers, in the cycle in which the fold's queue has what was completed.
  assign fold_valid_o = completes;
  assign fold_o       = packet_q;
  assign judged_o     = is_c_q && ask_q == AskJudge && !is_early_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      done_o         <= '0;
      aged_o         <= 1'b0;
      folded_valid_o <= 1'b0;
      early_valid_o  <= 1'b0;
    end else begin
      done_o         <= is_c_q && ask_q == AskJudge ? port_q : '0;
      aged_o         <= is_c_q && ask_q == AskAge && is_old;
      folded_valid_o <= writes && ask_q == AskMade;
      early_valid_o  <= is_c_q && ask_q == AskJudge && is_early_q && is_current && judged.completes;
    end
  end

  always_ff @(posedge clk_i) begin
    verdict_o <= verdict;
    job_o        <= packet_q.job[JobBits-1:0];
    arrived_o    <= now.arrived;
    is_missing_o <= now.arrived != ports_i[packet_q.job[JobBits-1:0]];
    folded_o     <= packet_q;
  end

  // --- Which sum is there? ---
  simple_dual_port_ram #(
    .Width($bits(tag_t)),
    .Depth(Jobs * Places)
  ) u_tags (
    .clk_i,
    .write_i        (completes || (writes && ask_q == AskMade)),
    .write_address_i(address_q),
    .write_data_i   ({ask_q == AskMade, packet_q.generation, packet_q.message}),
    .read_i         (1'b1),
    .read_address_i (tag_address_i),
    .read_data_o    (tag)
  );
  assign {tag_valid_o, tag_generation_o, tag_message_o} = tag;

  // --- At reset all places are cleared, before anything else ---
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_clearing_q <= 1'b1;
      clear_q       <= '0;
    end else if (is_clearing_q) begin
      clear_q       <= clear_q + 1'b1;
      is_clearing_q <= clear_q != '1;
    end
  end

endmodule
