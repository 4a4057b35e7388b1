// Fig. 14: asks handlers in turn, counts who is in each place, and folds a place when all are: the payload buffers of
// all ports are read in step, at a beat a cycle; the numbers go to their ranks' places, through the adder tree and into
// the result buffer. One fold follows the other without a bubble.
//
// The gradients of the last port may still be on their way then: they come at a beat a cycle, so it is enough that
// their first beat has come. A sum is told of when its first beat is there, and may be read at the same pace.
//
// A fold may also begin early, before the last contribution has been judged: the handler has copied most of the frame by
// then, and asked what the answer would be. Such a fold writes nothing until its place is complete. It ends without a
// trace if that does not happen before its first sum leaves the adders. The place is folded again when it is complete.
module aggregation_processor
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Ports = 8,
  parameter int unsigned Jobs  = 1,
  parameter bit          HasBfp = 1'b0,
  parameter bit          HasHalf = 1'b0,
  localparam int unsigned PlaceAddressWidth   = PlaceWidth + $clog2(Jobs),
  localparam int unsigned PayloadAddressWidth = PlaceAddressWidth + $clog2(PayloadBeats),
  localparam int unsigned PortBits            = $clog2(Ports),
  localparam int unsigned JobBits             = Jobs > 1 ? $clog2(Jobs) : 1
) (
  input  logic                                  clk_i,
  input  logic                                  rst_ni,

  input  logic                                  tick_i,
  input  logic [31:0]                           age_limit_i,
  output logic                                  aged_o,

  // The Job Table.
  input  generation_t [Jobs-1:0]                   generation_i,
  input  logic [Jobs-1:0][Ports-1:0]            ports_i,
  input  logic [Jobs-1:0][Ports-1:0]            has_rank_i,
  input  logic [Jobs-1:0][Ports-1:0][PortBits-1:0] port_of_rank_i,
  input  logic [Jobs-1:0][Columns-1:0][Ports-1:0]  adds_i,

  // Handlers.
  input  logic                                  is_coming_i,
  input  logic [Ports-1:0]                      valid_i,
  input  packet_t [Ports-1:0]                   packet_i,
  input  logic [Ports-1:0]                      is_early_i,
  input  logic [Ports-1:0]                      is_bad_i,
  output logic [Ports-1:0]                      done_o,
  output verdict_e                              verdict_o,
  output logic [JobBits-1:0]                    job_o,
  output logic [Ports-1:0]                      arrived_o,
  output logic                                  is_missing_o,
  input  logic [Ports-1:0]                      is_awaited_i,
  input  logic [Ports-1:0][PlaceAddressWidth-1:0] awaited_place_i,

  // Buffers: what is read of payloads comes two cycles later.
  output logic                                  payload_read_o,
  output logic [PayloadAddressWidth-1:0]        payload_address_o,
  input  logic [Ports-1:0][63:0]                payload_data_i,
  output logic                                  result_write_o,
  output logic [PayloadAddressWidth-1:0]        result_address_o,
  output logic [63:0]                           result_data_o,

  // The Output Arbiter: a sum that is fresh; which sums are kept; the place that is being sent.
  output logic                                  sum_valid_o,
  output packet_t                               sum_o,
  input  logic                                  sum_taken_i,        // it is sent from now on
  input  packet_t                               sum_taken_packet_i,
  output logic                                  made_busy_o,        // ... and not yet known as one that is kept
  output logic                                  folded_valid_o,     // ... now it is
  output packet_t                               folded_o,
  input  logic [PlaceAddressWidth-1:0]          tag_address_i,
  output logic                                  tag_valid_o,
  output generation_t                             tag_generation_o,
  output logic [31:0]                           tag_message_o,
  input  logic                                  is_sending_i,
  input  logic [PlaceAddressWidth-1:0]          sending_place_i
);

  localparam int unsigned ReadLatency = 2;
  localparam int unsigned TreeLatency = AdderStages * $clog2(Ports);
  localparam int unsigned Words       = 2;  // of a beat
  localparam int unsigned Lanes       = HasHalf ? 4 : Words;  // numbers a cycle
  localparam int unsigned FoldLatency = ReadLatency + 1 + TreeLatency;
  localparam int unsigned DrainWidth  = $clog2(FoldLatency + 1);
  // The Output Arbiter reads a sum eleven cycles after it is told, or later: after Check, Look, Match, and eight steps.
  // It may be told so many cycles before its first beat is written.
  localparam int unsigned Ahead       = 10;
  localparam int unsigned TellLatency = FoldLatency > Ahead ? FoldLatency - Ahead : 1;
  localparam int unsigned SumsMax     = 8;  // on their way from here to the Output Arbiter
  localparam int unsigned SumsWidth   = $clog2(SumsMax + 1);

  typedef struct packed {
    logic                           is_valid;
    logic                           is_early;
    logic [JobBits-1:0]             job;
    logic                           is_float;
    logic                           is_half, is_fp16;
    logic [PayloadAddressWidth-1:0] address;
  } beat_of_fold_t;

  logic                         is_complete, is_judged, queue_ready, complete_valid, early_valid, early_valid_q;
  packet_t                      completed, complete, early_q, head, fold_q, made_q;
  logic                         is_folding_q, starts, starts_early, begins, is_last, is_held, is_sending_fold;
  logic                         is_early_q;     // this fold is not confirmed yet
  logic                         is_over, confirms, ends_early, is_confirmed_q, has_told_q;
  logic [6:0]                   beat_q, left_q;  // beats behind this one
  logic [PlaceAddressWidth-1:0] head_place, fold_place;
  logic [SumsWidth-1:0]         sums_q;
  logic                         made_ready, made_valid_q, is_begun, unused_ready;
  beat_of_fold_t                reads, permutes, adds, writes;
  logic [Ports-1:0]             added, permuted;  // ranks
  logic [Ports-1:0][63:0]       of_rank;
  logic [DrainWidth-1:0]        drain_q;
  logic [Ports-1:0][32*Lanes-1:0] numbers, numbers_q;
  logic [Ports-1:0][63:0]       blocks_data;
  logic [32*Lanes-1:0]          sums;
  logic [63:0]                  result;
  logic                         is_blocks, blocks_ready, blocks_read, blocks_busy;
  logic                         blocks_start_q, blocks_valid, blocks_valid_q;
  logic                         blocks_write, blocks_tell, tells, tells_early;
  logic [6:0]                   blocks_beat;
  logic [PayloadAddressWidth-1:0] blocks_address;
  logic [63:0]                  blocks_result;

  logic unused_bits;
  assign unused_bits = ^{fold_q, writes, unused_ready};

  aggregation_status #(
    .Ports(Ports),
    .Jobs (Jobs)
  ) u_status (
    .clk_i,
    .rst_ni,
    .tick_i,
    .age_limit_i,
    .aged_o,
    .generation_i,
    .ports_i,
    .is_coming_i,
    .valid_i,
    .packet_i,
    .is_early_i,
    .is_bad_i,
    .done_o,
    .verdict_o,
    .job_o,
    .arrived_o,
    .is_missing_o,
    .fold_valid_o    (is_complete),
    .fold_ready_i    (queue_ready),
    .fold_o          (completed),
    .early_valid_o   (early_valid),
    .judged_o        (is_judged),
    .made_valid_i    (made_valid_q),
    .made_ready_o    (made_ready),
    .made_i          (made_q),
    .folded_valid_o,
    .folded_o,
    .tag_address_i,
    .tag_valid_o,
    .tag_generation_o,
    .tag_message_o
  );

  // --- Places that are complete, in their order ---
  stream_queue #(
    .Width($bits(packet_t)),
    .Depth(8)
  ) u_complete (
    .clk_i,
    .rst_ni,
    .s_valid_i(is_complete && !confirms),
    .s_ready_o(queue_ready),
    .s_data_i (completed),
    .m_valid_o(complete_valid),
    .m_ready_i(starts),
    .m_data_o (complete)
  );

  // --- The place that will be complete next: until its last contribution is judged ---
  assign is_over = is_judged && completed == early_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      early_valid_q <= 1'b0;
    end else begin
      early_valid_q <= early_valid || (early_valid_q && !starts_early && !is_over);
    end
  end

  always_ff @(posedge clk_i) begin
    if (early_valid) early_q <= folded_o;
  end

  // --- Reading ---
  // A fold waits for the last frame's first words, for a sum of its place that is being sent, and where the Output
  // Arbiter lags behind.
  assign head       = complete_valid ? complete : early_q;
  assign head_place = PlaceAddressWidth'({head.job, head.place});
  assign fold_place = PlaceAddressWidth'({fold_q.job, fold_q.place});
  always_comb begin
    is_sending_fold = is_sending_i && sending_place_i == fold_place;
    is_held         = (is_sending_i && sending_place_i == head_place) || sums_q == SumsWidth'(SumsMax);
    for (int unsigned port = 0; port < Ports; port++) begin
      if (is_awaited_i[port] && awaited_place_i[port] == head_place) is_held = 1'b1;
    end
  end

  // Block floating point is read and written by others; one kind follows the other when that has left the adders. An
  // early fold begins where nothing else is to be done, so nothing waits behind it but for a moment.
  assign is_blocks  = HasBfp && head.how == FoldBfp;
  assign is_last    = is_folding_q && left_q == '0;
  assign starts     = complete_valid && !is_held &&
                      (is_blocks ? blocks_ready && !blocks_start_q && !is_folding_q && drain_q == '0
                                 : !blocks_busy && !blocks_start_q && (!is_folding_q || is_last));
  assign starts_early = early_valid_q && !is_over && !complete_valid && !is_held && !blocks_busy &&
                        !blocks_start_q && !is_folding_q && drain_q == '0;
  assign begins     = starts || starts_early;

  // The last contribution of an early fold is judged. An older sum of the place may still be sent; then this one must
  // wait.
  assign confirms   = is_early_q && is_complete && completed == fold_q && !is_sending_fold && !writes.is_valid;
  assign ends_early = is_early_q && ((is_judged && completed == fold_q) || writes.is_valid || aged_o);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_folding_q   <= 1'b0;
      is_early_q     <= 1'b0;
      is_confirmed_q <= 1'b0;
      has_told_q     <= 1'b0;
      blocks_start_q <= 1'b0;
      drain_q        <= '0;
      sums_q         <= '0;
    end else begin
      is_folding_q   <= (begins && !is_blocks) || (is_folding_q && !is_last && (confirms || !ends_early));
      is_early_q     <= starts_early || (is_early_q && !confirms && !ends_early);
      is_confirmed_q <= confirms || (is_confirmed_q && !starts_early);
      blocks_start_q <= starts && is_blocks;
      if (is_folding_q) begin
        drain_q <= DrainWidth'(FoldLatency);
      end else if (drain_q != '0) begin
        drain_q <= drain_q - 1'b1;
      end
      sums_q <= sums_q + SumsWidth'(starts || confirms) - SumsWidth'(sum_taken_i);
      // The time to tell of an early fold has come, and it is not confirmed.
      has_told_q <= is_early_q && (tells_early || has_told_q);
    end
  end

  always_ff @(posedge clk_i) begin
    // Where no fold goes on, one may begin. So these need not know whether it does, which is known late in a cycle.
    beat_q <= is_folding_q && !is_last ? beat_q + 7'd1 : '0;
    left_q <= is_folding_q && !is_last ? left_q - 7'd1 : 7'(head.last_word >> 1);
    if (begins) fold_q <= head;
  end

  assign payload_read_o    = is_folding_q || blocks_read;
  assign payload_address_o = {fold_place, is_folding_q ? beat_q : blocks_beat};
  assign reads             = '{is_valid: is_folding_q, is_early: is_early_q, job: fold_q.job[JobBits-1:0],
                               is_float: fold_q.how inside {FoldFp32, FoldFp16, FoldBf16},
                               is_half: HasHalf && fold_q.how inside {FoldFp16, FoldBf16},
                               is_fp16: HasHalf && fold_q.how == FoldFp16, address: payload_address_o};

  // --- To their ranks' places ---
  delay_line #(
    .Width ($bits(beat_of_fold_t)),
    .Cycles(ReadLatency)
  ) u_reads (
    .clk_i,
    .data_i(reads),
    .data_o(permutes)
  );

  assign added = has_rank_i[reads.job] & adds_i[reads.job][fold_q.place[8:7]];

  delay_line #(
    .Width (Ports),
    .Cycles(ReadLatency)
  ) u_added (
    .clk_i,
    .data_i(added),
    .data_o(permuted)
  );

  always_comb begin
    for (int unsigned rank = 0; rank < Ports; rank++) begin
      of_rank[rank] = permutes.is_half ? {4{16'h8000}} : permutes.is_float ? {2{32'h8000_0000}} : '0;
      if (permuted[rank]) of_rank[rank] = payload_data_i[port_of_rank_i[permutes.job][rank]];
    end
  end

  if (HasHalf) begin : gen_halves
    for (genvar rank = 0; rank < Ports; rank++) begin : gen_rank
      half_decoder u_decoder (
        .beat_i   (of_rank[rank]),
        .is_half_i(permutes.is_half),
        .is_fp16_i(permutes.is_fp16),
        .numbers_o(numbers[rank])
      );
    end

    half_encoder u_encoder (
      .sums_i   (sums),
      .is_half_i(writes.is_half),
      .is_fp16_i(writes.is_fp16),
      .beat_o   (result)
    );
  end else begin : gen_words
    assign numbers = of_rank;
    assign result  = sums;
  end

  always_ff @(posedge clk_i) begin
    adds      <= permutes;
    numbers_q <= numbers;
    for (int unsigned rank = 0; rank < Ports; rank++) begin
      if (blocks_valid) numbers_q[rank][63:0] <= blocks_data[rank];
    end
    blocks_valid_q <= blocks_valid;
  end

  // --- Through the adders ---
  adder_tree #(
    .Ranks       (Ports),
    .Lanes       (Lanes),
    .IntegerLanes(Words)
  ) u_tree (
    .clk_i,
    .is_float_i(adds.is_float || blocks_valid_q),
    .numbers_i (numbers_q),
    .sum_o     (sums)
  );

  delay_line #(
    .Width ($bits(beat_of_fold_t)),
    .Cycles(TreeLatency)
  ) u_adds (
    .clk_i,
    .data_i(adds),
    .data_o(writes)
  );

  // Of three pairs of elements one takes the lanes above, and two have lanes of their own.
  if (HasBfp) begin : gen_blocks
    localparam int unsigned DecodeLatency = 2;

    bfp_step_t                                read_step, decoded_step, sum_step;
    logic [Ports-1:0][63:0]                   beats_q;
    logic [Ports-1:0][BfpPairs-1:0][7:0]      exponents;
    logic [Ports-1:0][BfpPairs-1:0][1:0][7:0] mantissas;
    logic [Ports-1:0][BfpPairs-2:0][7:0]      other_exponents;
    logic [Ports-1:0][BfpPairs-2:0][1:0][7:0] other_mantissas;
    logic [2*BfpPairs-3:0][31:0]              other_sums, other_sums_q;
    logic [8:0]                               fold_words;

    assign fold_words = 9'(fold_q.last_word) + 9'd1;

    always_ff @(posedge clk_i) beats_q <= of_rank;

    bfp_reader #(
      .Ranks      (Ports),
      .ReadLatency(ReadLatency + 1)
    ) u_reader (
      .clk_i,
      .rst_ni,
      .start_i     (blocks_start_q),
      .words_i     (fold_words),
      .ready_o     (blocks_ready),
      .read_o      (blocks_read),
      .beat_o      (blocks_beat),
      .beats_i     (beats_q),
      .m_step_o    (read_step),
      .m_exponent_o(exponents),
      .m_mantissa_o(mantissas)
    );

    for (genvar rank = 0; rank < Ports; rank++) begin : gen_rank
      logic unused_s_ready, unused_valid, unused_user, unused_malformed;

      bfp_decoder #(
        .Lanes   (Words),
        .Block   (16),
        .Mantissa(7)
      ) u_decoder (
        .clk_i,
        .rst_ni,
        .s_tvalid_i  (1'b1),
        .s_tready_o  (unused_s_ready),
        .s_exponent_i(exponents[rank][0]),
        .s_mantissa_i(mantissas[rank][0]),
        .s_tuser_i   (1'b0),
        .m_tvalid_o  (unused_valid),
        .m_tready_i  (1'b1),
        .m_tdata_o   (blocks_data[rank]),
        .m_tuser_o   (unused_user),
        .malformed_o (unused_malformed)  // such a frame has not come as far as this
      );

      assign other_exponents[rank] = exponents[rank][BfpPairs-1:1];
      assign other_mantissas[rank] = mantissas[rank][BfpPairs-1:1];
    end

    bfp_lanes #(
      .Ranks(Ports),
      .Pairs(BfpPairs - 1)
    ) u_lanes (
      .clk_i,
      .exponent_i(other_exponents),
      .mantissa_i(other_mantissas),
      .sum_o     (other_sums)
    );

    always_ff @(posedge clk_i) other_sums_q <= other_sums;

    delay_line #(
      .Width ($bits(bfp_step_t)),
      .Cycles(DecodeLatency)
    ) u_decoded (
      .clk_i,
      .data_i(read_step),
      .data_o(decoded_step)
    );

    assign blocks_valid = decoded_step.is_valid;

    delay_line #(
      .Width ($bits(bfp_step_t)),
      .Cycles(1 + TreeLatency)
    ) u_sums (
      .clk_i,
      .data_i(decoded_step),
      .data_o(sum_step)
    );

    bfp_writer #(
      .PlaceAddressWidth(PlaceAddressWidth)
    ) u_writer (
      .clk_i,
      .rst_ni,
      .start_i  (blocks_start_q),
      .place_i  (fold_place),
      .words_i  (fold_words),
      .is_busy_o(blocks_busy),
      .s_step_i (sum_step),
      .s_data_i ({other_sums_q, sums[63:0]}),
      .write_o  (blocks_write),
      .address_o(blocks_address),
      .data_o   (blocks_result),
      .tells_o  (blocks_tell)
    );
  end else begin : gen_no_blocks
    assign {blocks_ready, blocks_read, blocks_valid, blocks_busy, blocks_write, blocks_tell} = '0;
    assign blocks_beat    = '0;
    assign blocks_data    = '0;
    assign blocks_address = '0;
    assign blocks_result  = '0;
  end

  assign result_write_o   = (writes.is_valid && (!writes.is_early || is_confirmed_q)) || blocks_write;
  assign result_address_o = blocks_write ? blocks_address : writes.address;
  assign result_data_o    = blocks_write ? blocks_result : result;

  // --- The sum is told of, when its first beat will be written in time; and kept, when it is sent ---
  delay_line #(
    .Width (2),
    .Cycles(TellLatency)
  ) u_tells (
    .clk_i,
    .data_i({is_folding_q && beat_q == '0 && is_early_q, is_folding_q && beat_q == '0 && !is_early_q}),
    .data_o({tells_early, tells})
  );

  stream_queue #(
    .Width($bits(packet_t)),
    .Depth(SumsMax)
  ) u_begun (
    .clk_i,
    .rst_ni,
    .s_valid_i(starts || confirms),
    .s_ready_o(unused_ready),  // always: there are no more sums
    .s_data_i (confirms ? fold_q : head),
    .m_valid_o(is_begun),
    .m_ready_i(sum_valid_o),
    .m_data_o (sum_o)
  );

  assign sum_valid_o = is_begun && (blocks_tell || tells || ((tells_early || has_told_q) && is_confirmed_q));
  assign made_busy_o = made_valid_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      made_valid_q <= 1'b0;
    end else begin
      made_valid_q <= sum_taken_i || (made_valid_q && !made_ready);
    end
  end

  always_ff @(posedge clk_i) begin
    if (sum_taken_i) made_q <= sum_taken_packet_i;
  end

endmodule
