// A port's judgement of what may be folded: Fig. 12. A frame is whole and waits in the Proc. FIFO meanwhile; nothing
// changes for a frame that is damaged. Checks and their order are those of the software switch
// (core/switch/protocols/roce/roce_handler.cc, roce_job.cc), so that verdicts are.
//
//   Idle   what the connections say of the frame is noted
//   Look   is it right?      Write First -> Table     later packet -> Ask
//   Table  the Job Table is asked: epoch, rank, the message that others send
//   Ask    the Aggregation Processor is asked: what is in the packet's place?
//   Copy   the frame streams into the buffers
// A later packet's answer comes five cycles after it is shown, if no other port's frame is judged at the same time.
//
// Near the end of a long frame, Look and Ask come once before it is whole: would it be folded? If so it is copied early,
// over nothing that is needed. It is judged when it is whole, by Ask only.
module aggregation_frame_handler
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Jobs   = 1,
  parameter bit          HasBfp = 1'b0,
  parameter bit          HasHalf = 1'b0,
  parameter int unsigned MessagePackets = MessagePacketsMax,  // of the longest message
  localparam int unsigned PlaceAddressWidth  = PlaceWidth + $clog2(Jobs),
  localparam int unsigned HeaderAddressWidth = PlaceAddressWidth + $clog2(HeaderBeats)
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  // The Frame Analyzer.
  input  logic                          info_valid_i,
  input  frame_info_t                   info_i,
  input  logic                          is_near_i,    // its end
  input  logic                          is_last_i,    // three beats are left, or less
  output logic                          early_o,      // the frame streams from now on, and is judged later
  output logic                          route_valid_o,
  output route_e                        route_o,
  input  logic                          s_valid_i,
  input  beat_t                         s_beat_i,
  output connection_t [Jobs-1:0]        connections_o,
  output verdict_e                      verdict_o,    // with route_valid_o
  output logic                          notice_valid_o,
  output notice_t                       notice_o,

  // The Job Table: held until it answers. It asks back for `facts_o` of the job that it has found.
  output logic                          table_valid_o,
  input  logic [JobWidth-1:0]           table_job_i,
  output first_facts_t                  facts_o,
  input  logic                          table_done_i,
  input  verdict_e                      table_verdict_i,
  input  logic                          table_binds_i,
  input  logic                          table_differs_i,
  input  logic                          table_miscounts_i,
  input  logic                          table_shortens_i,
  input  logic [15:0]                   table_told_i,
  input  logic [Jobs-1:0][15:0]         number_i,
  input  logic [Jobs-1:0][15:0]         epoch_i,
  input  logic [Jobs-1:0]               clear_i,      // a new epoch
  input  logic [Jobs-1:0]               is_recent_i,  // the job's last sign of life is less than a handover old
  input  logic [Jobs-1:0]               has_summed_i,
  input  logic [Jobs-1:0]               is_float_i,
  input  generation_t [Jobs-1:0]           generation_i,
  output logic [Jobs-1:0]               heard_o,      // a frame of the job, from its worker
  output logic [Jobs-1:0]               seen_o,       // ... or from another sender

  // The Aggregation Processor.
  output logic                          is_coming_o,    // a question, within two cycles
  output logic                          judge_valid_o,
  output packet_t                       judge_o,
  output logic                          judge_early_o,
  output logic                          judge_bad_o,   // its blocks are malformed, or it is damaged
  input  logic                          judge_done_i,
  input  verdict_e                      judge_verdict_i,
  input  logic                          is_missing_i,   // with VerdictWaiting, and of those the longest silent rank is
  input  logic [15:0]                   silent_i,       // a cycle later

  // Buffers.
  output logic                          header_write_o,
  output logic [HeaderAddressWidth-1:0] header_address_o,
  output logic                          repeat_write_o,
  output logic [RepeatBits+3:0]         repeat_address_o,
  output logic [63:0]                   header_data_o,
  output logic                          payload_write_o,
  output logic [PlaceAddressWidth+6:0]  payload_address_o,
  output logic [63:0]                   payload_data_o,
  output logic                          is_awaited_o,
  output logic [PlaceAddressWidth-1:0]  awaited_place_o,

  // Frames that came again, and whose sum is kept.
  output logic                          repeat_valid_o,  // its header begins to come in the next cycle
  input  logic                          repeat_ready_i,
  input  logic [RepeatBits-1:0]         repeat_slot_i,
  output packet_t                       repeat_o
);

  localparam int unsigned JobBits   = Jobs > 1 ? $clog2(Jobs) : 1;
  localparam logic [31:0] LengthMin = 32'd1004;
  localparam logic [10:0] LongFirst = 11'd1024, ShortFirst = 11'(4 * OwnWords + ShortBytes);
  localparam logic [31:0] LengthMax = 32'(4 * (MessagePackets * PacketWords - OwnWords));

  typedef enum logic [2:0] {Idle, Look, Table, Ask, Copy} state_e;

  state_e                    state_q, state_d, next;
  packet_t                   packet_q, packet_d;
  logic [6:0]                packet_of_message;
  logic [Jobs-1:0]           is_mine, is_same, is_found, is_ahead;
  logic [Jobs-1:0][8:0]      place;
  logic [Jobs-1:0][15:0]     rank;
  first_facts_t [Jobs-1:0]   facts;
  logic [Jobs-1:0][31:0]     message;
  shape_t [Jobs-1:0]         shape;
  shorts_t [Jobs-1:0]        shorts;
  logic [1:0]                column;
  logic                      is_mine_q, is_same_q, is_found_q, is_ahead_q, is_right_header_q, is_right_icrc_q;
  logic                      is_early_q;    // the frame is not whole yet
  logic                      was_asked_q;   // ... and it has been asked about: once is enough
  logic                      is_copied_q;   // it is copied early
  logic                      is_worth;      // to be asked about early
  logic                      is_right_q;    // a frame that is copied early is undamaged, as it turned out
  logic                      is_later;      // a connection's undamaged packet, no Write First
  logic [JobWidth-1:0]       job_q, job_d;      // of a later packet
  logic [8:0]                place_q;
  generation_t                 generation_q;  // when the connections were looked at
  logic                      enters;        // a Write First is the found job's to judge
  logic                      was_taken_q;   // when the Job Table judged: a cycle before it answers
  logic                      is_right_header;
  verdict_e                  verdict;
  shape_t                    shape_here;
  way_t                      way_of_first;
  shorts_t                   shorts_of_first, shorts_q;
  logic                      has_blocks_q;  // of bfp
  logic [8:0]                last_q;        // word of the payload
  logic                      has_whole_words_q, is_right_shape;
  logic                      asks_q;        // the processor, in Ask; else the shape is wrong
  logic                      can_repeat;
  logic                      is_written;    // over the connection: one more sign of life
  logic                      ends, folds, repeats, forwards, is_splitting, is_waiting, is_missed_q;
  logic [PlaceAddressWidth-1:0] asked_place, waiting_place;
  meta_t                     meta;

  for (genvar job = 0; job < Jobs; job++) begin : gen_job
    logic is_judged;  // the Job Table's answer concerns this job

    assign is_judged = table_done_i && table_job_i == JobWidth'(job) && state_q == Table;

    aggregation_connection u_connection (
      .clk_i,
      .rst_ni,
      .info_i,
      .clear_i     (clear_i[job]),
      .unbind_i    (enters && !is_judged && is_mine[job]),
      .bind_i      (is_judged && table_binds_i),
      .open_i      (is_judged && table_verdict_i == VerdictKept && facts[job].is_next),
      .reopen_i    (is_judged && table_verdict_i == VerdictKept && !facts[job].is_next),
      .shorts_i    (shorts_of_first),
      .connection_o(connections_o[job]),
      .rank_o      (rank[job]),
      .matches_o   (is_mine[job]),
      .is_same_o   (is_same[job]),
      .facts_o     (facts[job]),
      .is_found_o  (is_found[job]),
      .is_ahead_o  (is_ahead[job]),
      .place_o     (place[job]),
      .column_i    (column),
      .message_o   (message[job]),
      .shape_o     (shape[job]),
      .shorts_o    (shorts[job])
    );

    // Any write over a connection shows that its job is alive. Writes with other addresses are ignored. Before the job
    // has a sum, only Write Firsts count: they name their job, and a later packet may be another job's.
    assign heard_o[job] = (is_judged && table_binds_i) || (is_written && job_q == JobWidth'(job) && is_same_q);
    assign seen_o[job]  = (is_judged && enters) || (is_written && job_q == JobWidth'(job) && has_summed_i[job]);
  end

  assign is_written = is_copied_q ? judge_done_i && is_right_q : state_q == Look && is_later && !is_early_q;

  assign enters = table_done_i && state_q == Table && !was_taken_q && table_verdict_i != VerdictForwarded &&
                  table_verdict_i != VerdictEpoch && table_verdict_i != VerdictJobs;

  // --- Idle: what needs no more than the frame and the connections ---
  always_comb begin
    is_right_header = (info_i.is_v2 || info_i.aggregation.flags[7:WorkersShift] == '0) &&
                      (!way_of_first.is_one_way || info_i.aggregation.rank[14:13] == '0) &&
                      info_i.aggregation.length_bytes > LengthMin && info_i.aggregation.length_bytes <= LengthMax &&
                      info_i.aggregation.length_bytes[1:0] == '0;
    unique case (info_i.aggregation.format)
      FormatNone, FormatFp32, FormatInt32: begin
        if ({info_i.aggregation.block, info_i.aggregation.mantissa} != '0) is_right_header = 1'b0;
      end
      FormatFp16, FormatBf16: begin
        if (!HasHalf || {info_i.aggregation.block, info_i.aggregation.mantissa} != '0) is_right_header = 1'b0;
      end
      FormatBfp: begin
        if (!HasBfp || {info_i.aggregation.block, info_i.aggregation.mantissa} != {8'd16, 8'd7}) is_right_header = 1'b0;
      end
      default: is_right_header = 1'b0;
    endcase
  end

  assign way_of_first           = way_of(info_i.aggregation.flags[OneWayBit], info_i.aggregation.rank[15],
                                         info_i.aggregation.rank[8 +: RankBits]);
  assign shorts_of_first.comes  = way_of_first.gives &&
                                  info_i.aggregation.rank[7:0] != 8'(info_i.aggregation.rank[12:8]);
  assign shorts_of_first.leaves = table_shortens_i;

  always_comb begin
    job_d = '0;
    for (int unsigned job = 0; job < Jobs; job++) begin
      if (is_mine[job]) job_d = JobWidth'(job);
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) begin
      job_q             <= job_d;
      is_right_header_q <= is_right_header;
      is_right_icrc_q   <= info_i.icrc_is_right;
      is_right_q        <= info_i.icrc_is_right && !info_i.is_malformed;
      has_whole_words_q <= info_i.payload_bytes[1:0] == '0;
      last_q            <= info_i.payload_bytes[10:2] - 9'd1;
      is_mine_q         <= |is_mine;
      is_same_q         <= is_same[job_d[JobBits-1:0]];
      is_found_q        <= is_found[job_d[JobBits-1:0]];
      is_ahead_q        <= is_ahead[job_d[JobBits-1:0]];
      place_q           <= place[job_d[JobBits-1:0]];
      generation_q      <= generation_i[job_d[JobBits-1:0]];
    end
  end

  // --- Look ---
  assign is_later          = !info_i.is_malformed && !info_i.is_first && is_mine_q && is_right_icrc_q;
  assign column            = place_q[8:7];
  assign packet_of_message = place_q[6:0];
  logic unused_end;
  assign unused_end = ^{shape_here.ends_tensor, shape_here.says_workers, shape_here.way, way_of_first.other};

  assign shape_here        = shape[job_q[JobBits-1:0]];
  assign is_right_shape    = has_whole_words_q &&
                             is_shaped(last_q, info_i.opcode, shape_here.last_word, packet_of_message,
                                       shorts[job_q[JobBits-1:0]].comes);

  // The Job Table looks at the facts a cycle after it has named the job.
  always_ff @(posedge clk_i) begin
    facts_o          <= facts[table_job_i[JobBits-1:0]];
    facts_o.is_bad   <= info_i.payload_bytes != (shorts_of_first.comes ? ShortFirst : LongFirst) ||
                        info_i.aggregation.flags[1] ||
                        info_i.reth_length != info_i.aggregation.length_bytes + 32'd20;
    facts_o.is_taken <= 1'b0;
    was_taken_q      <= facts_o.is_taken;
    for (int unsigned job = 0; job < Jobs; job++) begin
      if (is_mine[job] && is_recent_i[job] && table_job_i != JobWidth'(job)) facts_o.is_taken <= 1'b1;
    end
  end
  assign table_valid_o = state_q == Table;

  // The giver's bytes are taken for integers, to which nothing is added.
  function automatic fold_e fold_of(logic [2:0] format, logic is_float, logic gives);
    if (gives) return FoldInt32;
    if (format == FormatBfp[2:0]) return FoldBfp;
    if (HasHalf && format == FormatFp16[2:0]) return FoldFp16;
    if (HasHalf && format == FormatBf16[2:0]) return FoldBf16;
    return format == FormatFp32[2:0] || (format == FormatNone[2:0] && is_float) ? FoldFp32 : FoldInt32;
  endfunction

  // The requests to the processor.
  always_comb begin
    packet_d = packet_q;
    if (state_q == Table) begin
      packet_d.job     = table_job_i;
      packet_d.generation = generation_i[table_job_i[JobBits-1:0]];
      packet_d.place   = {info_i.aggregation.message[1:0], 7'd0};
      packet_d.message = info_i.aggregation.message;
      packet_d.last_word = 8'(PacketWords - OwnWords - 1);
      packet_d.how     = fold_of(info_i.aggregation.format[2:0], is_float_i[table_job_i[JobBits-1:0]],
                                   way_of_first.gives);
    end else begin
      packet_d.job     = job_q;
      packet_d.generation = generation_q;
      packet_d.place   = place_q;
      packet_d.message = message[job_q[JobBits-1:0]];
      packet_d.last_word = last_word_of(shape_here.last_word, packet_of_message);
      packet_d.how     = fold_of(shape_here.format, is_float_i[job_q[JobBits-1:0]], shape_here.way.gives);
    end
  end

  // --- The states ---
  assign is_coming_o   = (state_q == Idle && (info_valid_i || (is_near_i && !was_asked_q))) || state_q == Look ||
                         (is_copied_q && is_last_i);
  assign judge_valid_o = asks_q || (state_q == Idle && is_copied_q && info_valid_i);
  assign judge_o       = packet_q;
  assign judge_early_o = is_early_q;
  assign judge_bad_o   = is_copied_q ? !is_right_q : has_blocks_q && info_i.has_bad_block;

  // Blocks are folded in another order than they come. Of a shorter frame too little has come.
  assign is_worth      = !info_i.is_first && is_mine_q && is_same_q && is_found_q && info_i.payload_bytes[10:9] != '0 &&
                         shape_here.format != FormatBfp[2:0];

  always_comb begin
    next    = state_q;
    verdict = VerdictKept;
    ends    = 1'b0;
    unique case (state_q)
      Idle: begin
        if (info_valid_i) next = is_copied_q ? Ask : Look;
        else if (is_near_i && !was_asked_q) next = Look;
      end
      Look: begin
        ends = !is_early_q;
        if (is_early_q) begin
          next = is_worth ? Ask : Idle;
        end else if (info_i.is_malformed) begin
          verdict = VerdictMalformed;
        end else if (!info_i.is_first && !is_mine_q) begin
          verdict = VerdictForwarded;
        end else if (!is_right_icrc_q) begin
          verdict = VerdictIcrc;
        end else if (info_i.is_first && !is_right_header_q) begin
          verdict = VerdictHeader;
        end else if (info_i.is_first) begin
          ends    = 1'b0;
          next = Table;
        end else if (!is_same_q) begin
          verdict = VerdictSpoofed;
        end else if (!is_found_q) begin
          verdict = VerdictPsn;
        end else begin
          ends    = 1'b0;
          next = Ask;
        end
      end
      Table: begin
        if (table_done_i) begin
          verdict = table_verdict_i;
          ends    = verdict != VerdictKept;
          next = Ask;
        end
      end
      Ask: begin
        // The processor is not asked about a packet of a wrong shape.
        ends    = (judge_done_i || !asks_q) && !is_early_q;
        verdict = !asks_q ? VerdictShape :
                  judge_verdict_i == VerdictAnswered && !can_repeat ? VerdictRoom : judge_verdict_i;
        // The connection of a copied frame was found right before. Damage is known now.
        if (is_copied_q && !is_right_q) verdict = info_i.is_malformed ? VerdictMalformed : VerdictIcrc;
        if (is_early_q && (judge_done_i || !asks_q)) next = Idle;
      end
      Copy: if (!is_splitting) next = Idle;
      default: next = Idle;
    endcase
  end

  // Not from `verdict`, which is known later in a cycle.
  always_comb begin
    unique case (state_q)
      Look:    forwards = !is_early_q && !info_i.is_malformed && !info_i.is_first && !is_mine_q;
      Table:   forwards = table_verdict_i == VerdictForwarded;
      default: forwards = 1'b0;
    endcase
  end
  assign folds         = judge_done_i && state_q == Ask &&
                         (judge_verdict_i == VerdictKept || judge_verdict_i == VerdictFolded);
  // The header of what is copied early went elsewhere.
  assign can_repeat    = repeat_ready_i && !is_copied_q && !is_early_q;
  assign repeats       = judge_done_i && state_q == Ask && judge_verdict_i == VerdictAnswered && can_repeat;
  assign early_o       = folds && is_early_q;
  assign state_d       = !ends ? next : folds || repeats ? Copy : Idle;
  assign route_valid_o = ends;
  assign verdict_o     = verdict;
  always_comb begin
    route_o = RouteDrop;
    if (folds || repeats) route_o = RouteFold;
    if (forwards) route_o = RouteForward;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q     <= Idle;
      asks_q      <= 1'b0;
      is_missed_q <= 1'b0;
      is_early_q  <= 1'b0;
      was_asked_q <= 1'b0;
      is_copied_q <= 1'b0;
    end else begin
      state_q     <= state_d;
      is_missed_q <= state_q == Ask && judge_done_i && judge_verdict_i == VerdictWaiting && is_missing_i &&
                     !is_early_q && (!is_copied_q || is_right_q);
      is_early_q  <= state_d != Idle && (state_q == Idle ? !info_valid_i : is_early_q);
      was_asked_q <= !ends && (is_early_q || was_asked_q);
      is_copied_q <= !ends && (early_o || is_copied_q);
      asks_q      <= state_d == Ask && (state_q != Look || is_right_shape);
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Look || state_q == Table) packet_q <= packet_d;
    if (state_q == Look) begin
      shorts_q     <= shorts[job_q[JobBits-1:0]];
      has_blocks_q <= shape_here.format == FormatBfp[2:0];
    end
    if (state_q == Table) begin
      shorts_q     <= shorts_of_first;
      has_blocks_q <= info_i.aggregation.format[2:0] == FormatBfp[2:0];
    end
  end

  // --- Notices: at once; but the longest silent rank is known a cycle after the processor's answer, when the packet still
  // is what it was ---
  logic [JobBits-1:0] notice_job;

  assign notice_job = state_q == Look ? job_q[JobBits-1:0] : state_q == Table ? table_job_i[JobBits-1:0] :
                      packet_q.job[JobBits-1:0];
  always_comb begin
    notice_o       = '0;
    notice_o.job   = number_i[notice_job];
    notice_o.epoch = epoch_i[notice_job];
    unique case (state_q)
      Look: begin
        notice_valid_o   = is_later && is_same_q && !is_found_q && is_ahead_q && !is_early_q;
        notice_o.kind    = NoticeUnknown;
        notice_o.rank    = rank[notice_job];
        notice_o.message = {8'd0, info_i.psn};
      end
      Table: begin
        notice_valid_o   = table_done_i && ((table_verdict_i == VerdictMismatch && table_differs_i) ||
                                            (table_verdict_i == VerdictRank && table_miscounts_i));
        notice_o.kind    = table_miscounts_i ? NoticeWorkers : NoticeMismatch;
        notice_o.rank    = table_told_i;
        notice_o.message = info_i.aggregation.message;
      end
      default: begin
        notice_valid_o   = is_missed_q;
        notice_o.kind    = NoticeWaiting;
        notice_o.rank    = silent_i;
        notice_o.packet  = packet_q.place[6:0];
        notice_o.message = packet_q.message;
      end
    endcase
  end

  // --- Copy ---
  always_comb begin
    meta.is_short   = shorts_q.leaves;
    meta.kind       = kind_of(info_i.opcode);
    meta.is_v2      = info_i.is_v2;
    meta.has_tag    = info_i.has_tag;
    meta.generation = packet_q.generation;
    meta.message    = packet_q.message;
  end

  // A fold of the place waits for a cycle, also if the answer is no: the verdict is known later in this cycle.
  assign asked_place     = PlaceAddressWidth'({packet_q.job, packet_q.place});
  assign is_awaited_o    = is_waiting || judge_done_i;
  assign awaited_place_o = is_waiting ? waiting_place : asked_place;

  frame_splitter #(
    .HeaderAddressWidth(HeaderAddressWidth)
  ) u_splitter (
    .clk_i,
    .rst_ni,
    .start_i          ((folds && !is_copied_q) || repeats),
    .place_i          (asked_place),
    .is_repeat_i      (repeats),
    .slot_i           (repeat_slot_i),
    .meta_i           (meta),
    .last_word_i      (packet_q.last_word),
    .was_short_i      (shorts_q.comes),
    .stop_i           (is_copied_q && ends && !folds),
    .is_busy_o        (is_splitting),
    .is_awaited_o     (is_waiting),
    .awaited_place_o  (waiting_place),
    .s_valid_i,
    .s_beat_i,
    .header_write_o,
    .repeat_write_o,
    .repeat_address_o,
    .header_address_o,
    .header_data_o,
    .payload_write_o,
    .payload_address_o,
    .payload_data_o
  );

  assign repeat_valid_o = repeats;
  assign repeat_o       = packet_q;

endmodule
