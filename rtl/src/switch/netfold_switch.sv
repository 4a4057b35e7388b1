// The aggregation switch as one box with flat ports: an Ethernet switch that folds RoCE gradients in passing
// (docs/explanation/hardware-switch.md). Behind each port's streams belongs a MAC that adds and checks the FCS. A MAC
// cannot wait; netfold_switch_sliced can, and heeds s_rx_tready_o.
module netfold_switch
  import switch_pkg::*;
  import switch_registers_pkg::*;
#(
  parameter int unsigned Ports          = 8,     // 2 to 16
  parameter int unsigned Jobs           = 1,     // that fold at the same time
  parameter bit          HasBfp         = 1'b1,
  parameter bit          HasHalf        = 1'b0,  // fp16 and bf16
  parameter bit          Crossings      = 1'b1,  // 0: all ports run with clk_i
  parameter bit          IsSlice        = 1'b0,  // of netfold_switch_sliced: no SPI, and s_rx_dropped_i counts
  parameter int unsigned AddressEntries = 4096,
  parameter int unsigned AddressTickBits = 28,   // cycles of ADDRESS_AGE_LIMIT
  parameter int unsigned TickCycles     = 1024,  // of AGE_LIMIT, and of the job table's own limits
  parameter int unsigned QueueBeats     = 1024,  // of each in x out queue
  parameter int unsigned PortBeats      = 4096,  // of each Port FIFO
  parameter int unsigned MessagePackets = MessagePacketsMax  // of the longest message that is folded; a power of two
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,

  // Ethernet frames without their FCS, from and to the MACs.
  input  logic [Ports-1:0]       rx_clk_i,
  input  logic [Ports-1:0]       s_rx_tvalid_i,
  input  logic [Ports-1:0][63:0] s_rx_tdata_i,
  input  logic [Ports-1:0][7:0]  s_rx_tkeep_i,
  input  logic [Ports-1:0]       s_rx_tlast_i,
  input  logic [Ports-1:0]       s_rx_tuser_i,  // with the last beat: a damaged frame
  output logic [Ports-1:0]       s_rx_tready_o,
  input  logic [Ports-1:0][5:0]  s_rx_dropped_i,  // so many frames found no room on their way here: to be counted
  input  logic [Ports-1:0]       tx_clk_i,
  output logic [Ports-1:0]       m_tx_tvalid_o,
  input  logic [Ports-1:0]       m_tx_tready_i,
  output logic [Ports-1:0][63:0] m_tx_tdata_o,
  output logic [Ports-1:0][7:0]  m_tx_tkeep_o,
  output logic [Ports-1:0]       m_tx_tlast_o,
  output logic [Ports-1:0]       m_tx_tuser_o,  // with the last beat: to be sent damaged

  // Registers: AXI-Lite, and the SPI of the paper.
  input  logic [12:0]            s_axil_awaddr_i,
  input  logic                   s_axil_awvalid_i,
  output logic                   s_axil_awready_o,
  input  logic [31:0]            s_axil_wdata_i,
  input  logic                   s_axil_wvalid_i,
  output logic                   s_axil_wready_o,
  output logic [1:0]             s_axil_bresp_o,
  output logic                   s_axil_bvalid_o,
  input  logic                   s_axil_bready_i,
  input  logic [12:0]            s_axil_araddr_i,
  input  logic                   s_axil_arvalid_i,
  output logic                   s_axil_arready_o,
  output logic [31:0]            s_axil_rdata_o,
  output logic [1:0]             s_axil_rresp_o,
  output logic                   s_axil_rvalid_o,
  input  logic                   s_axil_rready_i,
  input  logic                   spi_sclk_i,
  input  logic                   spi_cs_ni,
  input  logic                   spi_mosi_i,
  output logic                   spi_miso_o
);

  // --- Settings, and what is counted ---
  config_t                 config_;
  logic [7:0]              address_age_limit;
  logic [Ports-1:0]        pauses, count_read;
  logic                    soft_reset, stage_rst_nq, learns, aged;
  logic [5:0]              count_index;
  logic [Ports-1:0][47:0]  count;
  arrival_t   [Ports-1:0]  arrival;
  parsed_t    [Ports-1:0]  parsed;
  departure_t [Ports-1:0]  departure;

  // --- Port Learning Stage ---
  logic  [Ports-1:0]            find_valid, find_ready, found_valid, found_ports, learn_valid, learn_ready;
  logic  [Ports-1:0]            sum_find_valid, sum_find_ready, sum_found_valid;
  logic  [Ports-1:0][47:0]      find_address, sum_find_address, learn_address;
  logic  [Ports-1:0]            frame_valid, frame_ready, frame_is_known;
  logic  [Ports-1:0]            port_is_filling, port_is_empty, port_is_crowded;
  beat_t [Ports-1:0]            frame_beat;
  mark_e [Ports-1:0]            frame_mark;
  logic  [Ports-1:0][Ports-1:0] frame_ports;

  mac_table #(
    .Ports   (Ports),
    .Askers  (2 * Ports),
    .Entries (AddressEntries),
    .TickBits(AddressTickBits)
  ) u_addresses (
    .clk_i,
    .rst_ni,
    .clear_i        (soft_reset),
    .age_limit_i    (address_age_limit),
    .learns_o       (learns),
    .find_valid_i   ({sum_find_valid, find_valid}),
    .find_ready_o   ({sum_find_ready, find_ready}),
    .find_address_i ({sum_find_address, find_address}),
    .found_valid_o  ({sum_found_valid, found_valid}),
    .found_ports_o  (found_ports),
    .learn_valid_i  (learn_valid),
    .learn_ready_o  (learn_ready),
    .learn_address_i(learn_address)
  );

  for (genvar i = 0; i < Ports; i++) begin : gen_in
    logic   rx_rst_n, in_valid, in_ready;
    beat_t  in_beat;
    types_t in_types;

    reset_sync u_reset (.clk_i(Crossings ? rx_clk_i[i] : clk_i), .rst_ni, .rst_no(rx_rst_n));

    mac_receive #(.Crosses(Crossings)) u_receive (
      .mac_clk_i (Crossings ? rx_clk_i[i] : clk_i),
      .mac_rst_ni(rx_rst_n),
      .s_tvalid_i(s_rx_tvalid_i[i]),
      .s_tready_o(s_rx_tready_o[i]),
      .s_tdata_i (s_rx_tdata_i[i]),
      .s_tkeep_i (s_rx_tkeep_i[i]),
      .s_tlast_i (s_rx_tlast_i[i]),
      .s_tuser_i (s_rx_tuser_i[i]),
      .clk_i,
      .rst_ni,
      .m_valid_o (in_valid),
      .m_ready_i (in_ready),
      .m_beat_o  (in_beat),
      .m_types_o (in_types)
    );

    port_analyzer #(
      .Ports    (Ports),
      .FifoBeats(PortBeats)
    ) u_analyzer (
      .clk_i,
      .rst_ni,
      .s_valid_i      (in_valid),
      .s_ready_o      (in_ready),
      .s_beat_i       (in_beat),
      .s_types_i      (in_types),
      .find_valid_o   (find_valid[i]),
      .find_ready_i   (find_ready[i]),
      .find_address_o (find_address[i]),
      .found_valid_i  (found_valid[i]),
      .found_ports_i  (found_ports),
      .learn_valid_o  (learn_valid[i]),
      .learn_ready_i  (learn_ready[i]),
      .learn_address_o(learn_address[i]),
      .m_valid_o      (frame_valid[i]),
      .m_ready_i      (frame_ready[i]),
      .m_beat_o       (frame_beat[i]),
      .m_mark_o       (frame_mark[i]),
      .m_is_known_o   (frame_is_known[i]),
      .m_ports_o      (frame_ports[i]),
      .is_filling_o   (port_is_filling[i]),
      .is_empty_o     (port_is_empty[i]),
      .is_crowded_o   (port_is_crowded[i]),
      .arrival_o      (arrival[i])
    );
  end

  // --- Frame Parsing Stage ---
  // A fold that begins early begins when most of the last frame has come, and its first sum leaves the adders soon after
  // the frame has been judged. More ports have more adders on the way.
  localparam int unsigned NearBeats = 8 + 4 * $clog2(Ports);

  logic        [Ports-1:0]            on_valid, on_first, info_valid, route_valid;
  logic        [Ports-1:0]            fold_valid, fold_ready, is_near, is_last, early;
  beat_t       [Ports-1:0]            on_beat, fold_beat;
  logic        [Ports-1:0][Ports-1:0] on_ports;
  frame_info_t [Ports-1:0]            info;
  route_e      [Ports-1:0]            route;
  connection_t [Ports-1:0][Jobs-1:0]  connections;

  for (genvar i = 0; i < Ports; i++) begin : gen_analyzer
    frame_analyzer #(
      .Ports    (Ports),
      .Port     (i),
      .Jobs     (Jobs),
      .NearBeats(NearBeats)
    ) u_analyzer (
      .clk_i,
      .rst_ni,
      .s_valid_i    (frame_valid[i]),
      .s_ready_o    (frame_ready[i]),
      .s_beat_i     (frame_beat[i]),
      .s_mark_i     (frame_mark[i]),
      .s_is_known_i (frame_is_known[i]),
      .s_ports_i    (frame_ports[i]),
      .is_crowded_i (port_is_crowded[i]),
      .m_valid_o    (on_valid[i]),
      .m_first_o    (on_first[i]),
      .m_beat_o     (on_beat[i]),
      .m_ports_o    (on_ports[i]),
      .connections_i(connections[i]),
      .info_valid_o (info_valid[i]),
      .info_o       (info[i]),
      .is_near_o    (is_near[i]),
      .is_last_o    (is_last[i]),
      .early_i      (early[i]),
      .route_valid_i(route_valid[i]),
      .route_i      (route[i]),
      .fold_valid_o (fold_valid[i]),
      .fold_ready_i (fold_ready[i]),
      .fold_beat_o  (fold_beat[i]),
      .abort_i      (soft_reset),
      .parsed_o     (parsed[i])
    );
  end

  // --- Aggregation Stage ---
  logic  [Ports-1:0]            sums_are_filling, sums_are_empty;
  logic  [Ports-1:0]            sum_valid, sum_ready, sum_lost, verdict_valid, notice_valid, notice_ready;
  beat_t [Ports-1:0]            sum_beat, notice_beat;
  logic  [Ports-1:0][Ports-1:0] sum_ports;
  verdict_e [Ports-1:0]         verdict;

  aggregation_stage #(
    .Ports         (Ports),
    .Jobs          (Jobs),
    .HasBfp        (HasBfp),
    .HasHalf       (HasHalf),
    .TickCycles    (TickCycles),
    .MessagePackets(MessagePackets)
  ) u_aggregation (
    .clk_i,
    .rst_ni         (stage_rst_nq),
    .config_i       (config_),
    .info_valid_i   (info_valid),
    .info_i         (info),
    .is_near_i      (is_near),
    .is_last_i      (is_last),
    .early_o        (early),
    .route_valid_o  (route_valid),
    .route_o        (route),
    .s_valid_i      (fold_valid),
    .s_ready_o      (fold_ready),
    .s_beat_i       (fold_beat),
    .connections_o  (connections),
    .m_valid_o      (sum_valid),
    .m_ready_i      (sum_ready),
    .m_beat_o       (sum_beat),
    .m_ports_o      (sum_ports),
    .find_valid_o   (sum_find_valid),
    .find_ready_i   (sum_find_ready),
    .find_address_o (sum_find_address),
    .found_valid_i  (sum_found_valid),
    .found_ports_i  (found_ports),
    .notice_valid_o (notice_valid),
    .notice_ready_i (notice_ready),
    .notice_beat_o  (notice_beat),
    .verdict_valid_o(verdict_valid),
    .verdict_o      (verdict),
    .is_filling_o   (sums_are_filling),
    .is_empty_o     (sums_are_empty),
    .sum_lost_o     (sum_lost),
    .aged_o         (aged)
  );

  // A sum goes to one port.
  logic [Ports-1:0][Ports-1:0] sum_offered, sum_taken;  // out, in

  for (genvar in = 0; in < Ports; in++) begin : gen_sum
    logic [Ports-1:0] taken;
    for (genvar to = 0; to < Ports; to++) begin : gen_to
      assign sum_offered[to][in] = sum_valid[in] && sum_ports[in][to];
      assign taken[to]           = sum_taken[to][in] && sum_ports[in][to];
    end
    assign sum_ready[in] = |taken;
  end

  // --- Output Stage: a queue from every port to every other, and an arbiter a port ---
  logic  [Ports-1:0][Ports-1:0] queue_valid, queue_ready, queue_dropped, queue_is_filling, queue_is_empty;  // out, in
  beat_t [Ports-1:0][Ports-1:0] queue_beat;

  for (genvar out = 0; out < Ports; out++) begin : gen_out
    logic             tx_rst_n, out_valid, out_ready, pause_valid, pause_ready;
    logic [Ports-1:0] is_filling, is_empty;  // queues of what came in here
    beat_t            out_beat, pause_beat;

    for (genvar in = 0; in < Ports; in++) begin : gen_queue
      if (in == out) begin : gen_none
        assign queue_valid[out][in]      = 1'b0;
        assign queue_beat[out][in]       = '0;
        assign queue_dropped[out][in]    = 1'b0;
        assign queue_is_filling[out][in] = 1'b0;
        assign queue_is_empty[out][in]   = 1'b1;
      end else begin : gen_one
        frame_queue #(.Beats(QueueBeats)) u_queue (
          .clk_i,
          .rst_ni,
          .s_valid_i   (on_valid[in] && on_ports[in][out]),
          .s_first_i   (on_first[in]),
          .s_beat_i    (on_beat[in]),
          .dropped_o   (queue_dropped[out][in]),
          .m_valid_o   (queue_valid[out][in]),
          .m_ready_i   (queue_ready[out][in]),
          .m_beat_o    (queue_beat[out][in]),
          .is_filling_o(queue_is_filling[out][in]),
          .is_empty_o  (queue_is_empty[out][in])
        );
      end
    end

    for (genvar other = 0; other < Ports; other++) begin : gen_depth
      assign is_filling[other] = queue_is_filling[other][out];
      assign is_empty[other]   = queue_is_empty[other][out];
    end

    pause_generator u_pause (
      .clk_i,
      .rst_ni,
      .enable_i    (pauses[out]),
      .is_filling_i(|is_filling || port_is_filling[out] || sums_are_filling[out]),
      .is_empty_i  (&is_empty && port_is_empty[out] && sums_are_empty[out]),
      .m_valid_o   (pause_valid),
      .m_ready_i   (pause_ready),
      .m_beat_o    (pause_beat)
    );

    output_arbiter #(.Ports(Ports)) u_arbiter (
      .clk_i,
      .rst_ni,
      .queue_valid_i (queue_valid[out]),
      .queue_ready_o (queue_ready[out]),
      .queue_beat_i  (queue_beat[out]),
      .notice_valid_i(notice_valid[out]),
      .notice_ready_o(notice_ready[out]),
      .notice_beat_i (notice_beat[out]),
      .sum_valid_i   (sum_offered[out]),
      .sum_ready_o   (sum_taken[out]),
      .sum_beat_i    (sum_beat),
      .sums_end_i    (soft_reset),
      .pause_valid_i (pause_valid),
      .pause_ready_o (pause_ready),
      .pause_beat_i  (pause_beat),
      .m_valid_o     (out_valid),
      .m_ready_i     (out_ready),
      .m_beat_o      (out_beat),
      .departure_o   (departure[out])
    );

    reset_sync u_reset (.clk_i(Crossings ? tx_clk_i[out] : clk_i), .rst_ni, .rst_no(tx_rst_n));

    mac_send #(.Crosses(Crossings)) u_send (
      .clk_i,
      .rst_ni,
      .s_valid_i (out_valid),
      .s_ready_o (out_ready),
      .s_beat_i  (out_beat),
      .mac_clk_i (Crossings ? tx_clk_i[out] : clk_i),
      .mac_rst_ni(tx_rst_n),
      .m_tvalid_o(m_tx_tvalid_o[out]),
      .m_tready_i(m_tx_tready_i[out]),
      .m_tdata_o (m_tx_tdata_o[out]),
      .m_tkeep_o (m_tx_tkeep_o[out]),
      .m_tlast_o (m_tx_tlast_o[out]),
      .m_tuser_o (m_tx_tuser_o[out])
    );
  end

  // --- Registers and counters ---
  logic        spi_valid, spi_write, spi_done;
  logic [12:0] spi_address;
  logic [31:0] spi_wdata;

  if (!IsSlice) begin : gen_spi
    spi_slave u_spi (
      .clk_i,
      .rst_ni,
      .sclk_i   (spi_sclk_i),
      .cs_ni    (spi_cs_ni),
      .mosi_i   (spi_mosi_i),
      .miso_o   (spi_miso_o),
      .valid_o  (spi_valid),
      .write_o  (spi_write),
      .address_o(spi_address),
      .wdata_o  (spi_wdata),
      .done_i   (spi_done),
      .rdata_i  (s_axil_rdata_o)
    );
  end else begin : gen_no_spi
    logic unused_spi;
    assign unused_spi  = ^{spi_sclk_i, spi_cs_ni, spi_mosi_i, spi_done};
    assign spi_valid   = 1'b0;
    assign spi_write   = 1'b0;
    assign spi_address = '0;
    assign spi_wdata   = '0;
    assign spi_miso_o  = 1'b0;
  end

  switch_registers #(
    .Ports  (Ports),
    .Jobs   (Jobs),
    .HasBfp (HasBfp),
    .HasHalf(HasHalf)
  ) u_registers (
    .clk_i,
    .rst_ni,
    .awaddr_i           (s_axil_awaddr_i),
    .awvalid_i          (s_axil_awvalid_i),
    .awready_o          (s_axil_awready_o),
    .wdata_i            (s_axil_wdata_i),
    .wvalid_i           (s_axil_wvalid_i),
    .wready_o           (s_axil_wready_o),
    .bresp_o            (s_axil_bresp_o),
    .bvalid_o           (s_axil_bvalid_o),
    .bready_i           (s_axil_bready_i),
    .araddr_i           (s_axil_araddr_i),
    .arvalid_i          (s_axil_arvalid_i),
    .arready_o          (s_axil_arready_o),
    .rdata_o            (s_axil_rdata_o),
    .rresp_o            (s_axil_rresp_o),
    .rvalid_o           (s_axil_rvalid_o),
    .rready_i           (s_axil_rready_i),
    .spi_valid_i        (spi_valid),
    .spi_write_i        (spi_write),
    .spi_address_i      (spi_address),
    .spi_wdata_i        (spi_wdata),
    .spi_done_o         (spi_done),
    .config_o           (config_),
    .address_age_limit_o(address_age_limit),
    .pause_o            (pauses),
    .soft_reset_o       (soft_reset),
    .learns_i           (learns),
    .aged_i             (aged),
    .count_read_o       (count_read),
    .count_index_o      (count_index),
    .count_i            (count)
  );

  // The aggregation stage is reset by software too; around it, what it has begun is brought to an end.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      stage_rst_nq <= 1'b0;
    end else begin
      stage_rst_nq <= !soft_reset;
    end
  end

  for (genvar i = 0; i < Ports; i++) begin : gen_count
    logic [Counters-1:0] events;
    logic [Ports-1:0]    dropped_q;
    logic [4:0]          copies, copies_q;  // that were dropped
    arrival_t            arrival_q;
    parsed_t             parsed_q;
    departure_t          departure_q;
    verdict_e            verdict_q;
    logic                verdict_valid_q, sum_lost_q;
    logic [5:0]          left_out_q;  // frames that did not come in
    logic [6:0]          rooms;

    // All is counted a cycle or two later: most of it comes out of long comparisons.
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        dropped_q       <= '0;
        copies_q        <= '0;
        arrival_q       <= '0;
        departure_q     <= '0;
        parsed_q        <= '0;
        verdict_valid_q <= 1'b0;
        sum_lost_q      <= 1'b0;
        left_out_q      <= '0;
      end else begin
        for (int unsigned out = 0; out < Ports; out++) dropped_q[out] <= queue_dropped[out][i];
        copies_q        <= copies;
        arrival_q       <= arrival[i];
        departure_q     <= departure[i];
        parsed_q        <= parsed[i];
        verdict_valid_q <= verdict_valid[i];
        sum_lost_q      <= sum_lost[i];
        left_out_q      <= s_rx_dropped_i[i];
      end
    end
    always_ff @(posedge clk_i) verdict_q <= verdict[i];

    always_comb begin
      copies = '0;
      rooms  = 7'(parsed_q.gave_way) + 7'(arrival_q.no_room);
      if (IsSlice) rooms += 7'(left_out_q);
      for (int unsigned out = 0; out < Ports; out++) copies += 5'(dropped_q[out]);
      events                    = Counters'(verdict_valid_q) << verdict_q;
      events[CountDropRoom]    |= rooms != '0;
      events[CountFramesIn]     = arrival_q.ended;
      events[CountBytesIn]      = arrival_q.ended;
      events[CountForwarded]    = parsed_q.forwarded;
      events[CountFlooded]      = parsed_q.flooded;
      events[CountFiltered]     = parsed_q.filtered || arrival_q.filtered;
      events[CountDropRunt]     = parsed_q.runt || arrival_q.runt;
      events[CountDropBadSource] = arrival_q.bad_source;
      events[CountDropTooManyTags] = parsed_q.overtagged;
      events[CountOversize]     = arrival_q.oversize;
      events[CountDamaged]      = arrival_q.damaged;
      events[CountDropQueueFull] = copies_q != '0;
      events[CountDropSum]      = sum_lost_q;
      events[CountFramesOut]    = departure_q.ended;
      events[CountBytesOut]     = departure_q.ended;
      events[CountSumsOut]      = departure_q.ended && departure_q.sum;
      events[CountNoticesOut]   = departure_q.ended && departure_q.notice;
      events[CountPausesOut]    = departure_q.ended && departure_q.pause;
    end

    port_counters #(
      .CountsRooms(IsSlice)
    ) u_counters (
      .clk_i,
      .rst_ni,
      .event_i    (events),
      .bytes_in_i (arrival_q.bytes),
      .bytes_out_i(departure_q.bytes),
      .copies_i   (copies_q),
      .rooms_i    (rooms),
      .read_i     (count_read[i]),
      .index_i    (count_index),
      .data_o     (count[i])
    );
  end

endmodule
