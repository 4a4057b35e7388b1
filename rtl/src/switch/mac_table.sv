// Which port an address was last seen at: the forwarding table of all Port Analyzers. Buckets of four entries, found by
// a CRC of the address. Finding and learning are pipelines of their own, each with its copy of the table; both serve
// who asks in turn, one a cycle. An entry without a frame for `age_limit_i` ticks is unknown, and is removed by a sweep
// that goes through all buckets once a tick. A sweep after reset clears them; nothing is known or learned before.
module mac_table #(
  parameter int unsigned Ports    = 8,
  parameter int unsigned Askers   = Ports,
  parameter int unsigned Entries  = 4096,  // a power of two, at least 64
  parameter int unsigned TickBits = 28     // a tick is so many cycles: 1.3 s at 200 MHz
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  input  logic                   clear_i,      // forget everything
  input  logic [7:0]             age_limit_i,  // ticks, at most 254
  output logic                   learns_o,     // it is clear

  // Where is this address? The answer comes three cycles after the question was taken. The address stands for a cycle
  // more than the question.
  input  logic [Askers-1:0]       find_valid_i,
  output logic [Askers-1:0]       find_ready_o,
  input  logic [Askers-1:0][47:0] find_address_i,
  output logic [Askers-1:0]       found_valid_o,  // to whom the answer is
  output logic [Ports-1:0]        found_ports_o,  // one bit; 0: unknown

  // This port has heard from this address.
  input  logic [Ports-1:0]       learn_valid_i,
  output logic [Ports-1:0]       learn_ready_o,
  input  logic [Ports-1:0][47:0] learn_address_i
);

  localparam int unsigned Ways        = 4;
  localparam int unsigned BucketWidth = $clog2(Entries / Ways);
  localparam int unsigned PortWidth   = $clog2(Ports);
  localparam int unsigned AskerWidth  = $clog2(Askers);

  typedef logic [BucketWidth-1:0] bucket_t;

  typedef struct packed {
    logic                 is_used;
    logic [7:0]           seen;  // tick
    logic [PortWidth-1:0] port;
    logic [47:0]          address;
  } entry_t;

  function automatic logic [4:0] number_of(logic [31:0] one_hot);
    number_of = '0;
    for (int unsigned i = 0; i < 32; i++) if (one_hot[i]) number_of |= 5'(i);
  endfunction

  // --- Time ---
  logic [TickBits-1:0] time_q;
  logic [7:0]          tick_q, oldest_q, newest_q;  // of entries that are known
  logic                wraps_q;                     // the newest is a smaller number than the oldest

  // A comparison with two registers is a shorter path than that of an age.
  function automatic logic is_known(logic [7:0] seen);
    return wraps_q ? seen >= oldest_q || seen <= newest_q : seen >= oldest_q && seen <= newest_q;
  endfunction

  always_ff @(posedge clk_i) begin
    newest_q <= tick_q;  // an entry of a new tick is read a cycle later still
    oldest_q <= tick_q - age_limit_i;
    wraps_q  <= tick_q < age_limit_i;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      time_q <= '0;
      tick_q <= '0;
    end else begin
      time_q <= time_q + 1'b1;
      tick_q <= tick_q + 8'(&time_q);
    end
  end

  // --- The table: a copy for each pipeline, written together ---
  bucket_t           find_bucket, bucket1_q, write_bucket_q;
  logic [Ways-1:0]   write_q;
  entry_t            entry_q;
  entry_t [Ways-1:0] found_q, known_q;

  for (genvar way = 0; way < Ways; way++) begin : gen_way
    logic [$bits(entry_t)-1:0] find_memory [Entries/Ways], learn_memory [Entries/Ways];

    always_ff @(posedge clk_i) begin
      if (write_q[way]) find_memory[write_bucket_q] <= entry_q;
      found_q[way] <= find_memory[find_bucket];
    end
    always_ff @(posedge clk_i) begin
      if (write_q[way]) learn_memory[write_bucket_q] <= entry_q;
      known_q[way] <= learn_memory[bucket1_q];
    end
  end

  // --- Finding: choose, read, compare --- Addresses follow the choice by a cycle: both in one would be a long path.
  logic             is_clear_q;  // the sweep after reset is through
  logic [Askers-1:0] asker1_q, asker2_q, asker3_q;
  logic [Ways-1:0]   is_hit, is_hit_q;
  logic [Ways-1:0][PortWidth-1:0] port_q;
  logic [AskerWidth-1:0] asker_q;  // the number of asker1_q
  logic [47:0]      wanted, wanted_q;
  logic [31:BucketWidth] unused_find_hash;

  round_robin #(.Requests(Askers)) u_find (
    .clk_i, .rst_ni, .request_i(find_valid_i), .take_i(|find_valid_i), .grant_o(find_ready_o)
  );
  crc32 #(.Width(48)) u_find_hash (.crc_i('0), .data_i(wanted), .crc_o({unused_find_hash, find_bucket}));

  assign found_valid_o = asker3_q;

  selector #(.Inputs(Askers), .Width(48)) u_wanted (
    .index_i(asker_q), .data_i(find_address_i), .data_o(wanted)
  );

  always_comb begin
    found_ports_o = '0;
    for (int unsigned way = 0; way < Ways; way++) begin
      is_hit[way] = is_clear_q && found_q[way].is_used && found_q[way].address == wanted_q &&
                    is_known(found_q[way].seen);
      if (is_hit_q[way]) found_ports_o |= Ports'(1) << port_q[way];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asker1_q <= '0;
      asker2_q <= '0;
      asker3_q <= '0;
    end else begin
      asker1_q <= find_ready_o;
      asker2_q <= asker1_q;
      asker3_q <= asker2_q;
    end
  end

  always_ff @(posedge clk_i) begin
    asker_q  <= AskerWidth'(number_of(32'(find_ready_o)));
    wanted_q <= wanted;
    is_hit_q <= is_hit;
    for (int unsigned way = 0; way < Ways; way++) port_q[way] <= found_q[way].port;
  end

  // --- Learning and sweeping: choose, find the bucket, read, compare, decide, write --- A bucket that a lesson may
  // still write is not read.
  typedef struct packed {
    logic                 is_sweep;
    logic [PortWidth-1:0] port;
    logic [47:0]          address;
  } lesson_t;

  lesson_t              lesson_d, lesson0_q, lesson1_q, lesson2_q, lesson3_q;
  logic                 valid_d, valid0_q, valid1_q, valid2_q, valid3_q;
  bucket_t              learn_hash, bucket, bucket2_q, bucket3_q;
  logic [31:BucketWidth] unused_learn_hash;
  logic [Ports-1:0]     learn_grant;
  logic [BucketWidth:0] sweep_q;  // the next bucket to sweep; the highest bit: all are
  logic [Ways-1:0]      write_d, is_its, is_its_q, is_old, is_old_q, is_before, is_oldest;
  logic [Ways-1:0][Ways-1:0] is_older, is_older_q;  // the second than the first, and after it
  logic [2:0]           clashes_q;  // of the lesson that reads: with those that compare, decide and write
  logic                 waits, is_sweeping;
  logic [47:0]          learned;

  round_robin #(.Requests(Ports)) u_learn (
    .clk_i, .rst_ni, .request_i(learn_valid_i), .take_i(|learn_ready_o), .grant_o(learn_grant)
  );
  crc32 #(.Width(48)) u_learn_hash (.crc_i('0), .data_i(lesson0_q.address), .crc_o({unused_learn_hash, learn_hash}));

  assign learns_o      = is_clear_q;
  assign is_sweeping   = !sweep_q[BucketWidth];
  assign learn_ready_o = waits || !is_clear_q ? '0 : learn_grant;
  assign bucket        = lesson0_q.is_sweep ? sweep_q[BucketWidth-1:0] : learn_hash;
  assign waits         = valid1_q && clashes_q != '0;

  always_comb begin
    // Not whether one is ready, but whether one would be: it is known earlier, and else nothing is taken.
    lesson_d.is_sweep = learn_grant == '0 || !is_clear_q;
    valid_d           = !lesson_d.is_sweep || is_sweeping;
    lesson_d.port     = PortWidth'(number_of(32'(learn_grant)));
    lesson_d.address  = learned;
  end

  selector #(.Inputs(Ports), .Width(48)) u_learned (
    .index_i(lesson_d.port), .data_i(learn_address_i), .data_o(learned)
  );

  // The address's own entry, else a free one, else the oldest. All pairs of ways are compared at once, and ticks as
  // they are: one way after the other, or ages, would be the longest path of the switch.
  always_comb begin
    is_older = '0;
    for (int unsigned way = 0; way < Ways; way++) begin
      is_its[way]    = known_q[way].is_used && known_q[way].address == lesson2_q.address;
      is_old[way]    = !is_clear_q || !is_known(known_q[way].seen);
      is_before[way] = known_q[way].seen > newest_q;  // before the counter of ticks began again
    end
    for (int unsigned way = 0; way < Ways; way++) begin
      for (int unsigned later = way + 1; later < Ways; later++) begin
        is_older[way][later] = known_q[way].is_used && (!known_q[later].is_used ||
          (is_before[later] == is_before[way] ? known_q[later].seen < known_q[way].seen : is_before[later]));
      end
    end
  end

  always_comb begin
    is_oldest = '1;
    for (int unsigned way = 0; way < Ways; way++) begin
      for (int unsigned later = way + 1; later < Ways; later++) begin
        if (is_older_q[way][later]) is_oldest[way] = 1'b0;
        else                        is_oldest[later] = 1'b0;
      end
    end
    if (!valid3_q) begin
      write_d = '0;
    end else if (lesson3_q.is_sweep) begin
      write_d = is_old_q;
    end else begin
      write_d = |is_its_q ? is_its_q : is_oldest;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid0_q   <= 1'b0;
      valid1_q   <= 1'b0;
      valid2_q   <= 1'b0;
      valid3_q   <= 1'b0;
      write_q    <= '0;
      sweep_q    <= '0;
      is_clear_q <= 1'b0;
    end else begin
      if (!waits) begin
        valid0_q <= valid_d;
        valid1_q <= valid0_q;
      end
      valid2_q <= valid1_q && !waits;
      valid3_q <= valid2_q;
      write_q  <= write_d;
      if (clear_i) begin
        is_clear_q <= 1'b0;
        sweep_q    <= '0;
      end else begin
        if (!waits && lesson0_q.is_sweep && valid0_q && is_sweeping) begin
          sweep_q <= sweep_q + 1'b1;
        end else if (&time_q) begin
          sweep_q <= '0;
        end
        if (!is_sweeping && !valid0_q && !valid1_q && !valid2_q && !valid3_q) is_clear_q <= 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!waits) begin
      lesson0_q <= lesson_d;
      lesson1_q <= lesson0_q;
      bucket1_q <= bucket;
      clashes_q <= {valid3_q && bucket3_q == bucket, valid2_q && bucket2_q == bucket, valid1_q && bucket1_q == bucket};
    end else begin
      clashes_q <= clashes_q << 1;
    end
    lesson2_q      <= lesson1_q;
    bucket2_q      <= bucket1_q;
    lesson3_q      <= lesson2_q;
    bucket3_q      <= bucket2_q;
    is_its_q       <= is_its;
    is_old_q       <= is_old;
    is_older_q     <= is_older;
    write_bucket_q <= bucket3_q;
    entry_q        <= lesson3_q.is_sweep ? '0 : {1'b1, tick_q, lesson3_q.port, lesson3_q.address};
  end

endmodule
