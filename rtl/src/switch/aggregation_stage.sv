// The aggregation, as one box between the Frame Analyzers and the Output Arbiters: a handler and a builder a port, what
// the ports share, and the buffers (docs/explanation/hardware-switch.md).
module aggregation_stage
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Ports         = 8,
  parameter int unsigned Jobs          = 1,
  parameter bit          HasBfp        = 1'b0,
  parameter bit          HasHalf       = 1'b0,
  parameter int unsigned TickCycles    = 1024,
  parameter logic [31:0] HandoverTicks = 32'd195_313,     // of 1024 cycles: a second
  parameter logic [31:0] IdleTicks     = 32'd23_437_500,  // two minutes
  parameter int unsigned MessagePackets = MessagePacketsMax  // of the longest message that is folded
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  config_t                       config_i,  // taken when an epoch of a job begins

  // Judgement.
  input  logic [Ports-1:0]              info_valid_i,
  input  frame_info_t [Ports-1:0]       info_i,
  input  logic [Ports-1:0]              is_near_i,
  input  logic [Ports-1:0]              is_last_i,
  output logic [Ports-1:0]              early_o,
  output logic [Ports-1:0]              route_valid_o,
  output route_e [Ports-1:0]            route_o,
  input  logic [Ports-1:0]              s_valid_i,   // after RouteFold or early: the frame, at once, as it comes
  output logic [Ports-1:0]              s_ready_o,
  input  beat_t [Ports-1:0]             s_beat_i,
  output connection_t [Ports-1:0][Jobs-1:0] connections_o,

  // Sums.
  output logic [Ports-1:0]              m_valid_o,
  input  logic [Ports-1:0]              m_ready_i,
  output beat_t [Ports-1:0]             m_beat_o,
  output logic [Ports-1:0][Ports-1:0]   m_ports_o,

  // Where is the worker that a sum is for? The address table answers some cycles later.
  output logic [Ports-1:0]              find_valid_o,
  input  logic [Ports-1:0]              find_ready_i,
  output logic [Ports-1:0][47:0]        find_address_o,
  input  logic [Ports-1:0]              found_valid_i,
  input  logic [Ports-1:0]              found_ports_i,  // one bit; 0: unknown

  // To a port's worker itself.
  output logic [Ports-1:0]              notice_valid_o,
  input  logic [Ports-1:0]              notice_ready_i,
  output beat_t [Ports-1:0]             notice_beat_o,

  output logic [Ports-1:0]              verdict_valid_o,
  output verdict_e [Ports-1:0]          verdict_o,
  output logic [Ports-1:0]              is_filling_o,  // too many sums of a port's worker wait: it is to be paused
  output logic [Ports-1:0]              is_empty_o,
  output logic [Ports-1:0]              sum_lost_o,  // a sum was not sent: its port is unknown, or too many wait
  output logic                          aged_o       // a place was released
);

  localparam int unsigned PortBits            = $clog2(Ports);
  localparam int unsigned PlaceAddressWidth   = PlaceWidth + $clog2(Jobs);
  localparam int unsigned HeaderAddressWidth  = PlaceAddressWidth + $clog2(HeaderBeats);
  localparam int unsigned PayloadAddressWidth = PlaceAddressWidth + $clog2(PayloadBeats);
  localparam int unsigned TickWidth           = $clog2(TickCycles);

  // --- Time ---
  logic [TickWidth-1:0] cycle_q;
  logic                 tick;

  assign tick = cycle_q == TickWidth'(TickCycles - 1);
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      cycle_q <= '0;
    end else begin
      cycle_q <= tick ? '0 : cycle_q + 1'b1;
    end
  end

  // --- What the ports agree on ---
  logic [Ports-1:0]                                table_valid, table_done;
  first_facts_t [Ports-1:0]                        facts;
  logic [JobWidth-1:0]                             table_job;
  verdict_e                                        table_verdict;
  logic                                            table_binds, table_differs, table_miscounts, table_shortens;
  logic [$clog2(Ports+1)-1:0]                      table_told;
  logic [Ports-1:0][Jobs-1:0]                      seen;
  logic [Jobs-1:0]                                 clear, is_pending, is_recent, has_summed, is_float;
  generation_t [Jobs-1:0]                             generation;
  logic [Jobs-1:0][15:0]                           number, epoch;
  logic [Ports-1:0][Jobs-1:0]                      heard;
  logic [Jobs-1:0][Ports-1:0]                      folding, ranks, has_rank;
  logic [Jobs-1:0][Ports-1:0][PortBits-1:0]        port_of_rank;
  logic [Jobs-1:0][Columns-1:0][Ports-1:0]         adds;
  logic                                            folded_valid;
  packet_t                                         folded_packet;

  job_table #(
    .Ports        (Ports),
    .Jobs         (Jobs),
    .HandoverTicks(HandoverTicks),
    .IdleTicks    (IdleTicks)
  ) u_jobs (
    .clk_i,
    .rst_ni,
    .config_i,
    .tick_i         (tick),
    .valid_i        (table_valid),
    .info_i,
    .facts_i        (facts),
    .done_o         (table_done),
    .job_o          (table_job),
    .verdict_o      (table_verdict),
    .binds_o        (table_binds),
    .differs_o      (table_differs),
    .miscounts_o    (table_miscounts),
    .told_o         (table_told),
    .shortens_o     (table_shortens),
    .seen_i         (seen),
    .is_recent_o    (is_recent),
    .has_summed_o   (has_summed),
    .clear_o        (clear),
    .is_pending_i   (is_pending),
    .folded_i       (folded_valid),
    .folded_packet_i(folded_packet),
    .number_o       (number),
    .epoch_o        (epoch),
    .is_float_o     (is_float),
    .generation_o   (generation),
    .ports_o        (folding),
    .ranks_o        (ranks),
    .has_rank_o     (has_rank),
    .port_of_rank_o (port_of_rank),
    .adds_o         (adds)
  );

  localparam int unsigned JobBits = Jobs > 1 ? $clog2(Jobs) : 1;
  localparam int unsigned SumsBits = 6;  // of complete places: 8 wait to be folded, 8 to be sent, one is on its way

  // --- Folding ---
  logic [Ports-1:0]                        is_coming, judge_valid, judge_done, judged_early, judged_bad, arrived;
  logic [Ports-1:0]                        is_awaited;
  packet_t [Ports-1:0]                     judged;
  verdict_e                                judge_verdict;
  logic [JobBits-1:0]                      judged_job;
  logic                                    is_missing, sum_valid, made_busy;
  packet_t                                 sum, sum_taken_packet;
  logic [Ports-1:0][PlaceAddressWidth-1:0] awaited_place;
  logic                                    payload_read, result_write, result_read, sum_taken, is_sending, tag_valid;
  logic [PayloadAddressWidth-1:0]          payload_address, result_address, sent_address;
  logic [Ports-1:0][63:0]                  payload_data;
  logic [63:0]                             result_data, sent_data;
  logic [PlaceAddressWidth-1:0]            tag_address, sending_place;
  generation_t                               tag_generation;
  logic [31:0]                             tag_message;

  aggregation_processor #(
    .Ports  (Ports),
    .Jobs   (Jobs),
    .HasBfp (HasBfp),
    .HasHalf(HasHalf)
  ) u_processor (
    .clk_i,
    .rst_ni,
    .tick_i           (tick),
    .age_limit_i      (config_i.age_limit),
    .aged_o,
    .generation_i     (generation),
    .ports_i          (folding),
    .has_rank_i       (has_rank),
    .port_of_rank_i   (port_of_rank),
    .adds_i           (adds),
    .is_coming_i      (|is_coming),
    .valid_i          (judge_valid),
    .packet_i         (judged),
    .is_early_i       (judged_early),
    .is_bad_i         (judged_bad),
    .done_o           (judge_done),
    .verdict_o        (judge_verdict),
    .job_o            (judged_job),
    .arrived_o        (arrived),
    .is_missing_o     (is_missing),
    .is_awaited_i     (is_awaited),
    .awaited_place_i  (awaited_place),
    .payload_read_o   (payload_read),
    .payload_address_o(payload_address),
    .payload_data_i   (payload_data),
    .result_write_o   (result_write),
    .result_address_o (result_address),
    .result_data_o    (result_data),
    .sum_valid_o      (sum_valid),
    .sum_o            (sum),
    .sum_taken_i      (sum_taken),
    .sum_taken_packet_i(sum_taken_packet),
    .made_busy_o      (made_busy),
    .folded_valid_o   (folded_valid),
    .folded_o         (folded_packet),
    .tag_address_i    (tag_address),
    .tag_valid_o      (tag_valid),
    .tag_generation_o (tag_generation),
    .tag_message_o    (tag_message),
    .is_sending_i     (is_sending),
    .sending_place_i  (sending_place)
  );

  for (genvar job = 0; job < Jobs; job++) begin : gen_pending
    logic [SumsBits-1:0] sums_q;
    logic                completes, leaves;

    assign completes       = |(judge_done & ~judged_early) && judge_verdict == VerdictFolded &&
                             judged_job == JobBits'(job);
    assign leaves          = sum_taken && sum_taken_packet.job == JobWidth'(job);
    assign is_pending[job] = sums_q != '0;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        sums_q <= '0;
      end else begin
        sums_q <= sums_q + SumsBits'(completes) - SumsBits'(leaves);
      end
    end
  end

  packet_buffer #(
    .Jobs   (Jobs),
    .Packets(MessagePackets),
    .Beats  (PayloadBeats),
    .Latency(2)
  ) u_results (
    .clk_i,
    .write_i        (result_write),
    .write_address_i(result_address),
    .write_data_i   (result_data),
    .read_i         (result_read),
    .read_address_i (sent_address),
    .read_data_o    (sent_data)
  );

  // --- Whom do they wait for? ---
  logic [PortBits-1:0] silent, silent_q;

  silence #(
    .Ports(Ports),
    .Jobs (Jobs)
  ) u_silence (
    .clk_i,
    .rst_ni,
    .heard_i       (heard),
    .ranks_i       (ranks),
    .has_rank_i    (has_rank),
    .port_of_rank_i(port_of_rank),
    .job_i         (judged_job),
    .missed_i      (folding[judged_job] & ~arrived),
    .rank_o        (silent)
  );

  always_ff @(posedge clk_i) silent_q <= silent;

  // --- Sending ---
  logic [Ports-1:0]                 repeat_valid, repeat_ready, checks, has_room, is_late, is_missed, is_unsent;
  packet_t [Ports-1:0]              repeats;
  packet_t                          sent;
  logic [Ports-1:0][RepeatBits-1:0] repeat_slot, sent_slot;
  logic                             looks, steps, is_repeat, is_kept;
  logic [7:0]                       step;

  aggregation_output_arbiter #(
    .Ports(Ports),
    .Jobs (Jobs)
  ) u_arbiter (
    .clk_i,
    .rst_ni,
    .ports_i         (folding),
    .sum_valid_i     (sum_valid),
    .sum_i           (sum),
    .sum_taken_o     (sum_taken),
    .sum_taken_packet_o(sum_taken_packet),
    .made_busy_i     (made_busy),
    .repeat_valid_i  (repeat_valid),
    .repeat_ready_o  (repeat_ready),
    .repeat_i        (repeats),
    .repeat_slot_o   (repeat_slot),
    .is_filling_o,
    .is_empty_o,
    .tag_address_o   (tag_address),
    .tag_valid_i     (tag_valid),
    .tag_generation_i(tag_generation),
    .tag_message_i   (tag_message),
    .is_sending_o    (is_sending),
    .sending_place_o (sending_place),
    .looks_o         (looks),
    .checks_o        (checks),
    .is_kept_o       (is_kept),
    .packet_o        (sent),
    .is_repeat_o     (is_repeat),
    .slot_o          (sent_slot),
    .steps_o         (steps),
    .step_o          (step),
    .has_room_i      (has_room),
    .is_late_i       (is_late),
    .is_lost_o       (is_missed),
    .result_read_o   (result_read),
    .result_address_o(sent_address)
  );

  // --- Of each port: handler, buffers, builder ---
  for (genvar port = 0; port < Ports; port++) begin : gen_port
    logic                           header_write, repeat_write, payload_write;
    logic [HeaderAddressWidth-1:0]  header_address;
    logic [RepeatBits+3:0]          repeat_address;
    logic [3:0]                     sent_beat;
    logic                           notice_valid;
    notice_t                        notice;
    logic [63:0]                    written_header, header_data, repeat_data, written_payload;
    logic [PayloadAddressWidth-1:0] written_address;

    assign s_ready_o[port]       = 1'b1;
    assign verdict_valid_o[port] = route_valid_o[port];
    assign sum_lost_o[port]      = is_missed[port] || is_unsent[port];

    aggregation_frame_handler #(
      .Jobs          (Jobs),
      .HasBfp        (HasBfp),
      .HasHalf       (HasHalf),
      .MessagePackets(MessagePackets)
    ) u_handler (
      .clk_i,
      .rst_ni,
      .info_valid_i     (info_valid_i[port]),
      .info_i           (info_i[port]),
      .is_near_i        (is_near_i[port]),
      .is_last_i        (is_last_i[port]),
      .early_o          (early_o[port]),
      .route_valid_o    (route_valid_o[port]),
      .route_o          (route_o[port]),
      .s_valid_i        (s_valid_i[port]),
      .s_beat_i         (s_beat_i[port]),
      .connections_o    (connections_o[port]),
      .verdict_o        (verdict_o[port]),
      .notice_valid_o   (notice_valid),
      .notice_o         (notice),
      .table_valid_o    (table_valid[port]),
      .table_job_i      (table_job),
      .facts_o          (facts[port]),
      .table_done_i     (table_done[port]),
      .table_verdict_i  (table_verdict),
      .table_binds_i    (table_binds),
      .table_differs_i  (table_differs),
      .table_miscounts_i(table_miscounts),
      .table_told_i     (16'(table_told)),
      .table_shortens_i (table_shortens),
      .number_i         (number),
      .epoch_i          (epoch),
      .clear_i          (clear),
      .is_recent_i      (is_recent),
      .has_summed_i     (has_summed),
      .is_float_i       (is_float),
      .generation_i     (generation),
      .heard_o          (heard[port]),
      .seen_o           (seen[port]),
      .is_coming_o      (is_coming[port]),
      .judge_valid_o    (judge_valid[port]),
      .judge_o          (judged[port]),
      .judge_early_o    (judged_early[port]),
      .judge_bad_o      (judged_bad[port]),
      .judge_done_i     (judge_done[port]),
      .judge_verdict_i  (judge_verdict),
      .is_missing_i     (is_missing),
      .silent_i         (16'(silent_q)),
      .header_write_o   (header_write),
      .header_address_o (header_address),
      .repeat_write_o   (repeat_write),
      .repeat_address_o (repeat_address),
      .header_data_o    (written_header),
      .payload_write_o  (payload_write),
      .payload_address_o(written_address),
      .payload_data_o   (written_payload),
      .is_awaited_o     (is_awaited[port]),
      .awaited_place_o  (awaited_place[port]),
      .repeat_valid_o   (repeat_valid[port]),
      .repeat_ready_i   (repeat_ready[port]),
      .repeat_slot_i    (repeat_slot[port]),
      .repeat_o         (repeats[port])
    );

    packet_buffer #(
      .Jobs   (Jobs),
      .Packets(MessagePackets),
      .Beats  (HeaderBeats)
    ) u_headers (
      .clk_i,
      .write_i        (header_write),
      .write_address_i(header_address),
      .write_data_i   (written_header),
      .read_i         (is_sending),
      .read_address_i ({sending_place, sent_beat}),
      .read_data_o    (header_data)
    );

    simple_dual_port_ram #(
      .Width(64),
      .Depth(RepeatsMax * HeaderBeats)
    ) u_repeated_headers (
      .clk_i,
      .write_i        (repeat_write),
      .write_address_i(repeat_address),
      .write_data_i   (written_header),
      .read_i         (is_sending),
      .read_address_i ({sent_slot[port], sent_beat}),
      .read_data_o    (repeat_data)
    );

    packet_buffer #(
      .Jobs   (Jobs),
      .Packets(MessagePackets),
      .Beats  (PayloadBeats),
      .Latency(2)
    ) u_payloads (
      .clk_i,
      .write_i        (payload_write),
      .write_address_i(written_address),
      .write_data_i   (written_payload),
      .read_i         (payload_read),
      .read_address_i (payload_address),
      .read_data_o    (payload_data[port])
    );

    frame_builder #(
      .Ports(Ports)
    ) u_builder (
      .clk_i,
      .rst_ni,
      .looks_i      (looks),
      .checks_i     (checks[port]),
      .packet_i     (sent),
      .is_repeat_i  (is_repeat),
      .is_kept_i    (is_kept),
      .steps_i      (steps),
      .step_i       (step),
      .has_room_o   (has_room[port]),
      .is_late_o    (is_late[port]),
      .is_lost_o    (is_unsent[port]),
      .find_valid_o  (find_valid_o[port]),
      .find_ready_i  (find_ready_i[port]),
      .find_address_o(find_address_o[port]),
      .found_valid_i (found_valid_i[port]),
      .found_ports_i,
      .header_beat_o(sent_beat),
      .header_data_i(header_data),
      .repeat_data_i(repeat_data),
      .result_data_i(sent_data),
      .m_valid_o    (m_valid_o[port]),
      .m_ready_i    (m_ready_i[port]),
      .m_beat_o     (m_beat_o[port]),
      .m_ports_o    (m_ports_o[port])
    );

    notice_sender u_notices (
      .clk_i,
      .rst_ni,
      .valid_i  (notice_valid),
      .notice_i (notice),
      .to_i     (info_i[port].addresses.from),
      .m_valid_o(notice_valid_o[port]),
      .m_ready_i(notice_ready_i[port]),
      .m_beat_o (notice_beat_o[port])
    );
  end

endmodule
