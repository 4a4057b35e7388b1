// The state that all ports share: the jobs and their epochs, the ports that fold (the configuration as it was when the
// epoch began), the port of each rank, and the message in each column. Frame Handlers ask at Write Firsts, one at a
// time, in turn. The law is RoceHandler::on_first's and RoceJob::bind's and agree's.
//
//   Pick    the next handler that asks; or a job that nobody has sent for in a long while is forgotten
//   Find    is the job here, and whose configuration is it?
//   Begin   may it begin an epoch? All that was before is forgotten then
//   Drain   ... but who folds, and in which order, not before the sums that were complete by then have been made
//   Facts   the handler looks at its connection for that job
//   Judge   what to answer
//   Tell    the answer
module job_table
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Ports         = 8,
  parameter int unsigned Jobs          = 1,
  parameter logic [31:0] HandoverTicks = 32'd195_313,     // of 1024 cycles: a second
  parameter logic [31:0] IdleTicks     = 32'd23_437_500,  // two minutes
  localparam int unsigned PortBits   = $clog2(Ports),
  localparam int unsigned CountWidth = $clog2(Ports + 1)
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,

  input  config_t                        config_i,
  input  logic                           tick_i,

  // Handlers.
  input  logic [Ports-1:0]               valid_i,
  input  frame_info_t [Ports-1:0]        info_i,
  input  first_facts_t [Ports-1:0]       facts_i,
  output logic [Ports-1:0]               done_o,
  output logic [JobWidth-1:0]            job_o,
  output verdict_e                       verdict_o,     // VerdictKept: its packet may be judged
  output logic                           binds_o,
  output logic                           differs_o,     // with VerdictMismatch: from what another rank has begun
  output logic                           miscounts_o,   // with VerdictRank: the workers
  output logic [CountWidth-1:0]          told_o,        // that rank, or the right number
  output logic                           shortens_o,    // with VerdictKept: its packets leave short
  input  logic [Ports-1:0][Jobs-1:0]     seen_i,
  output logic [Jobs-1:0]                is_recent_o,
  output logic [Jobs-1:0]                has_summed_o,  // a packet: all its workers are here

  output logic [Jobs-1:0]                clear_o,       // an epoch ends: connections are forgotten in this cycle
  input  logic [Jobs-1:0]                is_pending_i,  // complete places of the job wait to be folded, or to be sent

  input  logic                           folded_i,      // a packet
  input  packet_t                        folded_packet_i,

  // Of every job.
  output logic [Jobs-1:0]                is_float_o,
  output generation_t [Jobs-1:0]            generation_o,
  output logic [Jobs-1:0][Ports-1:0]     ports_o,
  output logic [Jobs-1:0][15:0]          number_o,
  output logic [Jobs-1:0][15:0]          epoch_o,
  output logic [Jobs-1:0][Ports-1:0]               ranks_o,         // by rank: there is one
  output logic [Jobs-1:0][Ports-1:0]               has_rank_o,      // by rank: a worker has been heard
  // Of the message in a column, from when it is begun until all of it is folded: the ranks that add to it. The others'
  // packets are short.
  output logic [Jobs-1:0][Columns-1:0][Ports-1:0]  adds_o,          // by rank
  output logic [Jobs-1:0][Ports-1:0][PortBits-1:0] port_of_rank_o
);

  typedef enum logic [2:0] {Pick, Find, Begin, Drain, Facts, Judge, Tell} state_e;

  localparam logic [8:0] FoldCycles = 9'd300;  // from when the longest sum is begun to be sent to its last gradient

  typedef struct packed {
    logic [31:0]         message;
    shape_t              shape;
    logic [PortBits-1:0] rank;    // that began it
    logic [7:0]          folded;  // packets
  } column_t;

  typedef struct packed {
    logic             is_float;
    logic [Ports-1:0] ports;
  } folding_t;

  // The question of one port.
  typedef struct packed {
    first_facts_t        facts;
    logic                is_v2;
    aggregation_header_t header;
  } asked_t;

  localparam int unsigned JobBits = Jobs > 1 ? $clog2(Jobs) : 1;

  logic [Jobs-1:0]                         is_used_q, is_v2_q;  // jobs of v1 and of v2 have numbers of their own
  logic [Jobs-1:0][15:0]                   number_q, epoch_q;
  generation_t [Jobs-1:0]                     generation_q;
  folding_t [Jobs-1:0]                     folding_q;
  logic [Jobs-1:0][CountWidth-1:0]         workers_q;
  logic [Jobs-1:0][Ports-1:0]              has_rank_q;
  logic [Jobs-1:0][Ports-1:0][PortBits-1:0] port_of_rank_q;
  logic [Jobs-1:0][Columns-1:0]            is_begun_q;  // the column holds a message of this epoch
  column_t [Jobs-1:0][Columns-1:0]         columns_q;
  logic [Jobs-1:0][31:0]                   silence_q;   // ticks
  logic [Jobs-1:0]                         has_summed_q;

  state_e                state_q, state_d;
  logic [Ports-1:0]      turn;
  logic [PortBits-1:0]   port_q;              // whose Write First is judged
  logic [JobBits-1:0]    job_q;
  logic                  is_here_q, has_room_q, drained;
  logic [8:0]            drain_q;
  folding_t              folding_found_q;
  logic [Ports-1:0]      its_port_q;          // one bit
  asked_t [Ports-1:0]    asked;
  first_facts_t          facts;
  logic                  is_v2;
  aggregation_header_t   header;
  logic [CountWidth-1:0] workers_found;
  column_t               column;
  logic                  is_begun;
  shape_t                shape;
  way_t                  way;
  logic                  asks, begins, refuses, is_newer, forgets, is_new, is_new_q, is_wrong_rank_q, miscounts_q;
  logic                  is_wrong_other_q, is_for_other_q;
  logic [4:0]            workers;             // as the sender says
  logic                  binds, opens_q;      // opens_q: the rank begins a message before all others
  logic [PortBits-1:0]   rank;
  verdict_e              verdict, refusal, agreement, agreement_q;

  assign has_summed_o   = has_summed_q;
  assign is_float_o     = is_float();
  assign generation_o   = generation_q;
  assign number_o       = number_q;
  assign epoch_o        = epoch_q;
  assign has_rank_o     = has_rank_q;
  assign port_of_rank_o = port_of_rank_q;
  assign job_o          = JobWidth'(job_q);

  function automatic logic [Jobs-1:0] is_float();
    for (int unsigned job = 0; job < Jobs; job++) is_float[job] = folding_q[job].is_float;
  endfunction
  always_comb begin
    for (int unsigned job = 0; job < Jobs; job++) begin
      ports_o[job] = folding_q[job].ports;
      for (int unsigned r = 0; r < Ports; r++) begin
        ranks_o[job][r] = r < 32'(workers_q[job]);
        for (int unsigned c = 0; c < Columns; c++) begin
          adds_o[job][c][r] = !columns_q[job][c].shape.way.gives || columns_q[job][c].shape.way.other == RankBits'(r);
        end
      end
    end
  end

  round_robin #(
    .Requests(Ports)
  ) u_turns (
    .clk_i,
    .rst_ni,
    .request_i(valid_i),
    .take_i   (state_q == Pick && !forgets),
    .grant_o  (turn)
  );
  assign asks = |turn;

  logic unused_bits;
  assign unused_bits = ^{info_i, header, config_i.age_limit, folded_packet_i};

  assign way     = way_of(header.flags[OneWayBit], header.rank[15], header.rank[8 +: RankBits]);
  assign shape   = shape_of(header.length_bytes, header.format[2:0], workers, header.flags[0], way);
  always_comb begin
    for (int unsigned port = 0; port < Ports; port++) begin
      asked[port] = '{facts: facts_i[port], is_v2: info_i[port].is_v2, header: info_i[port].aggregation};
    end
  end

  selector #(.Inputs(Ports), .Width($bits(asked_t))) u_asked (
    .index_i(port_q),
    .data_i (asked),
    .data_o ({facts, is_v2, header})
  );

  assign workers = header.flags[7:WorkersShift];

  // --- Find ---
  always_ff @(posedge clk_i) begin
    if (state_q == Find) begin
      is_here_q  <= 1'b0;
      has_room_q <= 1'b0;
      job_q      <= '0;
      for (int unsigned job = 0; job < Jobs; job++) begin
        if (!is_used_q[job]) begin
          has_room_q <= 1'b1;
          job_q      <= JobBits'(job);
        end
      end
      for (int unsigned job = 0; job < Jobs; job++) begin
        if (is_used_q[job] && number_q[job] == header.job && is_v2_q[job] == is_v2) begin
          is_here_q <= 1'b1;
          job_q     <= JobBits'(job);
        end
      end
      folding_found_q <= '{is_float: config_i.is_float, ports: config_i.ports[Ports-1:0]};
      for (int unsigned i = 0; i < ExceptionsMax; i++) begin
        if (config_i.exceptions[i].is_used && config_i.exceptions[i].job == header.job) begin
          folding_found_q <= '{is_float: config_i.exceptions[i].is_float,
                               ports: config_i.exceptions[i].ports[Ports-1:0]};
        end
      end
    end
  end

  // --- Begin ---
  logic [15:0] ahead;
  logic        is_to_fold;  // the port, in the epoch that may begin

  assign ahead      = header.epoch - epoch_q[job_q];
  assign is_newer   = !ahead[15] && ahead != '0;
  assign is_to_fold = |(folding_found_q.ports & its_port_q);

  always_comb begin
    begins  = 1'b0;
    refuses = 1'b0;
    refusal = VerdictForwarded;
    if (!is_here_q || is_newer) begin
      begins = is_to_fold && (is_here_q || has_room_q);
      refuses = !begins;
      if (is_to_fold) refusal = VerdictJobs;
    end else if ((folding_q[job_q].ports & its_port_q) == '0) begin
      refuses = 1'b1;
    end else if (header.epoch != epoch_q[job_q]) begin
      refuses = 1'b1;
      refusal = VerdictEpoch;
    end
  end

  always_comb begin
    workers_found = '0;
    for (int unsigned port = 0; port < Ports; port++) workers_found += CountWidth'(folding_found_q.ports[port]);
  end

  // --- Facts: while the handler notes its own, what others say of the next message ---
  assign rank     = header.rank[PortBits-1:0];
  assign column   = columns_q[job_q][header.message[1:0]];
  assign is_begun = is_begun_q[job_q][header.message[1:0]];

  always_comb begin
    agreement = VerdictKept;
    is_new    = 1'b0;
    if (is_begun && column.message == header.message) begin
      if (column.shape != shape) agreement = VerdictMismatch;
    end else if (is_begun && is_older(header.message, column.message)) begin
      agreement = VerdictStale;
    end else if (is_begun && column.folded <= 8'(last_of(column.shape.last_word))) begin
      agreement = VerdictBusy;
    end else begin
      is_new = 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    agreement_q     <= agreement;
    is_new_q        <= is_new;
    is_wrong_rank_q <= sender_of(way.is_one_way, header.rank) >= 16'(workers_q[job_q]) ||
                       (has_rank_q[job_q][rank] && port_of_rank_q[job_q][rank] != port_q);
    miscounts_q     <= workers != '0 && workers != 5'(workers_q[job_q]);
    // The handler has dropped messages that name a rank above these bits.
    is_wrong_other_q <= way.is_one_way && header.rank[12:8] >= 5'(workers_q[job_q]);
    is_for_other_q   <= header.rank[12:8] == (CountWidth'(rank) + 1'b1 == workers_q[job_q] ? '0 : 5'(rank) + 5'd1);
  end

  // --- Judge: the handler's own verdicts and what others say, in the software's order ---
  always_comb begin
    binds   = 1'b0;
    verdict = refusal;
    if (state_q == Judge) begin
      if (facts.is_taken) begin
        verdict = VerdictSpoofed;
      end else if (facts.is_bad) begin
        verdict = VerdictHeader;
      end else if (is_wrong_other_q && !miscounts_q) begin
        verdict = VerdictHeader;
      end else if (miscounts_q || is_wrong_rank_q || facts.has_other_rank) begin
        verdict = VerdictRank;
      end else if (facts.is_spoofed) begin
        verdict = VerdictSpoofed;
      end else begin
        binds   = 1'b1;
        verdict = facts.is_next ? agreement_q : facts.verdict;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    verdict_o   <= verdict;
    binds_o     <= binds;
    opens_q     <= binds && is_new_q && facts.is_next;
    differs_o   <= facts.is_next;
    miscounts_o <= miscounts_q;
    shortens_o  <= way.is_one_way && way.gives == is_for_other_q;
    told_o      <= miscounts_q ? workers_q[job_q] : CountWidth'(column.rank);
  end

  assign done_o = its_port_q & {Ports{state_q == Tell}};

  // --- States ---
  assign drained = state_q == Drain && (!is_here_q || drain_q == FoldCycles);

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      Pick:    if (asks && !forgets) state_d = Find;
      Find:    state_d = Begin;
      Begin:   state_d = refuses ? Tell : begins ? Drain : Facts;
      Drain:   if (drained) state_d = Facts;
      Facts:   state_d = Judge;
      Judge:   state_d = Tell;
      Tell:    state_d = Pick;
      default: state_d = Pick;
    endcase
  end

  // --- Jobs that are silent ---
  logic [JobBits-1:0] silent_job;

  always_comb begin
    forgets    = 1'b0;
    silent_job = '0;
    for (int unsigned job = 0; job < Jobs; job++) begin
      is_recent_o[job] = silence_q[job] < HandoverTicks;
      if (is_used_q[job] && silence_q[job] >= IdleTicks) begin
        forgets    = 1'b1;
        silent_job = JobBits'(job);
      end
    end
  end

  always_comb begin
    clear_o = '0;
    if (state_q == Begin && begins) clear_o[job_q] = 1'b1;
    if (state_q == Pick && forgets) clear_o[silent_job] = 1'b1;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q         <= Pick;
      port_q          <= '0;
      its_port_q      <= '0;
      is_used_q       <= '0;
      generation_q    <= '0;
      drain_q         <= '0;
      has_rank_q      <= '0;
      silence_q       <= '0;
      has_summed_q    <= '0;
      is_begun_q      <= '0;
    end else begin
      state_q <= state_d;
      drain_q <= state_q != Drain || is_pending_i[job_q] ? '0 : drain_q + 9'd1;
      if (drained) begin  // packets that were folded until now are of the epoch before
        has_rank_q[job_q]   <= '0;
        has_summed_q[job_q] <= 1'b0;
      end
      if (state_q == Pick) begin
        if (asks) begin
          port_q     <= PortBits'(index_of(32'(turn)));
          its_port_q <= turn;
        end
      end
      for (int unsigned job = 0; job < Jobs; job++) begin
        if (tick_i && silence_q[job] != '1) silence_q[job] <= silence_q[job] + 32'd1;
        for (int unsigned port = 0; port < Ports; port++) if (seen_i[port][job]) silence_q[job] <= '0;
        if (clear_o[job]) begin
          is_used_q[job]    <= state_q == Begin;
          generation_q[job] <= generation_q[job] + 1'b1;
          silence_q[job]    <= '0;
          is_begun_q[job]   <= '0;
        end
      end
      if (folded_i) begin
        has_summed_q[folded_packet_i.job[JobBits-1:0]] <= 1'b1;
      end
      if (state_q == Tell && binds_o) begin
        has_rank_q[job_q][rank] <= 1'b1;
        if (opens_q) is_begun_q[job_q][header.message[1:0]] <= 1'b1;
      end
    end
  end

  // Without a reset: what a column says counts only where it is begun.
  always_ff @(posedge clk_i) begin
    if (folded_i) begin
      columns_q[folded_packet_i.job[JobBits-1:0]][folded_packet_i.place[8:7]].folded <=
          columns_q[folded_packet_i.job[JobBits-1:0]][folded_packet_i.place[8:7]].folded + 8'd1;
    end
    if (state_q == Tell && binds_o && opens_q) begin
      columns_q[job_q][header.message[1:0]] <= '{message: header.message, shape: shape, rank: rank, folded: '0};
    end
    if (state_q == Begin && begins) begin
      number_q[job_q] <= header.job;
      epoch_q[job_q]  <= header.epoch;
      is_v2_q[job_q]  <= is_v2;
    end
    if (drained) begin
      folding_q[job_q] <= folding_found_q;
      workers_q[job_q] <= workers_found;
    end
    if (state_q == Tell && binds_o) port_of_rank_q[job_q][rank] <= port_q;
  end

endmodule
