// The aggregation switch (docs/hardware/switch.md) as one box with flat ports: an Ethernet switch that folds RoCE v1
// gradients in passing. Behind each port's streams belongs a MAC that adds and checks the FCS.
module netfold_switch
  import switch_pkg::*;
#(
  parameter int unsigned Ports          = 8,     // 2 to 16
  parameter int unsigned Jobs           = 1,     // that fold at the same time
  parameter bit          HasBfp         = 1'b1,
  parameter bit          Crossings      = 1'b1,  // 0: all ports run with clk_i, for simulations
  parameter int unsigned AddressEntries = 4096,
  parameter int unsigned AddressTickBits = 28,
  parameter int unsigned QueueBeats     = 1024   // of each in x out queue
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

  // --- Port Learning Stage ---
  logic  [Ports-1:0]            find_valid, find_ready, found_valid, found_ports, learn_valid, learn_ready;
  logic  [Ports-1:0][47:0]      find_address, learn_address;
  logic  [Ports-1:0]            frame_valid, frame_ready, frame_is_known;
  beat_t [Ports-1:0]            frame_beat;
  logic  [Ports-1:0][Ports-1:0] frame_ports;
  arrival_t [Ports-1:0]         arrival;

  mac_table #(
    .Ports   (Ports),
    .Entries (AddressEntries),
    .TickBits(AddressTickBits)
  ) u_addresses (
    .clk_i,
    .rst_ni,
    .clear_i        (1'b0),
    .age_limit_i    (8'd224),
    .find_valid_i   (find_valid),
    .find_ready_o   (find_ready),
    .find_address_i (find_address),
    .found_valid_o  (found_valid),
    .found_ports_o  (found_ports),
    .learn_valid_i  (learn_valid),
    .learn_ready_o  (learn_ready),
    .learn_address_i(learn_address)
  );

  for (genvar i = 0; i < Ports; i++) begin : gen_in
    logic  rx_rst_n, in_valid, in_ready;
    beat_t in_beat;

    reset_sync u_reset (.clk_i(Crossings ? rx_clk_i[i] : clk_i), .rst_ni, .rst_no(rx_rst_n));

    mac_receive #(.Crosses(Crossings)) u_receive (
      .mac_clk_i (Crossings ? rx_clk_i[i] : clk_i),
      .mac_rst_ni(rx_rst_n),
      .s_tvalid_i(s_rx_tvalid_i[i]),
      .s_tdata_i (s_rx_tdata_i[i]),
      .s_tkeep_i (s_rx_tkeep_i[i]),
      .s_tlast_i (s_rx_tlast_i[i]),
      .s_tuser_i (s_rx_tuser_i[i]),
      .clk_i,
      .rst_ni,
      .m_valid_o (in_valid),
      .m_ready_i (in_ready),
      .m_beat_o  (in_beat)
    );

    port_analyzer #(.Ports(Ports)) u_analyzer (
      .clk_i,
      .rst_ni,
      .s_valid_i      (in_valid),
      .s_ready_o      (in_ready),
      .s_beat_i       (in_beat),
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
      .m_is_known_o   (frame_is_known[i]),
      .m_ports_o      (frame_ports[i]),
      .arrival_o      (arrival[i])
    );
  end

  // --- Frame Parsing Stage ---
  logic        [Ports-1:0]            on_valid, on_first, info_valid, destination_is_known, route_valid;
  logic        [Ports-1:0]            fold_valid, fold_ready;
  beat_t       [Ports-1:0]            on_beat, fold_beat;
  logic        [Ports-1:0][Ports-1:0] on_ports, destination_ports;
  frame_info_t [Ports-1:0]            info;
  route_e      [Ports-1:0]            route;
  connection_t [Ports-1:0][Jobs-1:0]  connections;
  parsed_t   [Ports-1:0]            parsed;

  for (genvar i = 0; i < Ports; i++) begin : gen_analyzer
    frame_analyzer #(
      .Ports(Ports),
      .Port (i),
      .Jobs (Jobs)
    ) u_analyzer (
      .clk_i,
      .rst_ni,
      .s_valid_i    (frame_valid[i]),
      .s_ready_o    (frame_ready[i]),
      .s_beat_i     (frame_beat[i]),
      .s_is_known_i (frame_is_known[i]),
      .s_ports_i    (frame_ports[i]),
      .m_valid_o    (on_valid[i]),
      .m_first_o    (on_first[i]),
      .m_beat_o     (on_beat[i]),
      .m_ports_o    (on_ports[i]),
      .connections_i(connections[i]),
      .info_valid_o (info_valid[i]),
      .info_o       (info[i]),
      .is_known_o   (destination_is_known[i]),
      .ports_o      (destination_ports[i]),
      .route_valid_i(route_valid[i]),
      .route_i      (route[i]),
      .fold_valid_o (fold_valid[i]),
      .fold_ready_i (fold_ready[i]),
      .fold_beat_o  (fold_beat[i]),
      .abort_i      (1'b0),
      .parsed_o   (parsed[i])
    );
  end

  // --- Aggregation Stage ---
  config_t                      aggregation_config;
  logic  [Ports-1:0]            sum_valid, sum_ready, sum_lost, verdict_valid;
  beat_t [Ports-1:0]            sum_beat;
  logic  [Ports-1:0][Ports-1:0] sum_ports;
  verdict_e [Ports-1:0]         verdict;
  logic                         aged;

  always_comb begin
    aggregation_config           = '0;
    aggregation_config.is_float  = 1'b1;
    aggregation_config.ports     = PortsMax'({Ports{1'b1}});
    aggregation_config.age_limit = 32'd1_953_125;  // ten seconds
  end

  aggregation_stage #(
    .Ports (Ports),
    .Jobs  (Jobs),
    .HasBfp(HasBfp)
  ) u_aggregation (
    .clk_i,
    .rst_ni,
    .config_i       (aggregation_config),
    .info_valid_i   (info_valid),
    .info_i         (info),
    .ports_i        (destination_ports),
    .is_known_i     (destination_is_known),
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
    .verdict_valid_o(verdict_valid),
    .verdict_o      (verdict),
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
    logic  tx_rst_n, out_valid, out_ready;
    beat_t out_beat;

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

    output_arbiter #(.Ports(Ports)) u_arbiter (
      .clk_i,
      .rst_ni,
      .queue_valid_i (queue_valid[out]),
      .queue_ready_o (queue_ready[out]),
      .queue_beat_i  (queue_beat[out]),
      .notice_valid_i(1'b0),
      .notice_ready_o(),
      .notice_beat_i ('0),
      .sum_valid_i   (sum_offered[out]),
      .sum_ready_o   (sum_taken[out]),
      .sum_beat_i    (sum_beat),
      .sums_end_i    (1'b0),
      .pause_valid_i (1'b0),
      .pause_ready_o (),
      .pause_beat_i  ('0),
      .m_valid_o     (out_valid),
      .m_ready_i     (out_ready),
      .m_beat_o      (out_beat)
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

  // --- Registers ---
  assign s_axil_awready_o = 1'b0;
  assign s_axil_wready_o  = 1'b0;
  assign s_axil_bresp_o   = '0;
  assign s_axil_bvalid_o  = 1'b0;
  assign s_axil_arready_o = 1'b0;
  assign s_axil_rdata_o   = '0;
  assign s_axil_rresp_o   = '0;
  assign s_axil_rvalid_o  = 1'b0;
  assign spi_miso_o       = 1'b0;

endmodule
