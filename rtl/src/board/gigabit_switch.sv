// The aggregation switch between gigabit PHYs: a MAC and RGMII pins for each port. The parameters are those that fit into
// an ECP5 with 108 block RAMs (decision 68). The switch works on 64 bits a cycle, so a clock of 50 MHz carries three
// times what a port brings.
module gigabit_switch
#(
  parameter int unsigned Ports          = 2,
  parameter int unsigned MessagePackets = 8,
  parameter int unsigned AddressEntries = 1024,
  parameter int unsigned QueueBeats     = 512,
  parameter int unsigned PortBeats      = 1024,
  parameter int          DelayTaps      = 0,   // of received data, see rgmii_receive
  parameter int unsigned LedBits        = 22
) (
  input  logic                  clk_i,     // of the switch
  input  logic                  rst_ni,    // released with clk_i
  input  logic                  tx_clk_i,  // 125 MHz

  input  logic [Ports-1:0]      rx_clk_i,
  input  logic [Ports-1:0]      rx_ctl_i,
  input  logic [Ports-1:0][3:0] rx_data_i,
  output logic [Ports-1:0]      tx_clk_o,
  output logic [Ports-1:0]      tx_ctl_o,
  output logic [Ports-1:0][3:0] tx_data_o,

  input  logic                  is_float_i,  // see start_settings
  input  logic                  spi_sclk_i,
  input  logic                  spi_cs_ni,
  input  logic                  spi_mosi_i,
  output logic                  spi_miso_o,

  // Lit at 0: a frame came in, a damaged one did, a frame went out.
  output logic [Ports-1:0]      led_in_no,
  output logic [Ports-1:0]      led_damaged_no,
  output logic [Ports-1:0]      led_out_no
);

  logic [Ports-1:0]       rx_valid, rx_last, rx_user, tx_valid, tx_ready, tx_last, tx_user;
  logic [Ports-1:0][63:0] rx_data, tx_data;
  logic [Ports-1:0][7:0]  rx_keep, tx_keep;
  logic                   tx_rst_n;
  logic [12:0]            awaddr;
  logic                   awvalid, awready;
  logic [31:0]            wdata;

  reset_sync u_tx_reset (.clk_i(tx_clk_i), .rst_ni, .rst_no(tx_rst_n));

  for (genvar i = 0; i < Ports; i++) begin : gen_port
    logic       rx_rst_n, in_valid, in_error, out_valid;
    logic [7:0] in_data, out_data;

    reset_sync u_rx_reset (.clk_i(rx_clk_i[i]), .rst_ni, .rst_no(rx_rst_n));

    rgmii_receive #(.DelayTaps(DelayTaps)) u_rx_pins (
      .rx_clk_i (rx_clk_i[i]),
      .rx_ctl_i (rx_ctl_i[i]),
      .rx_data_i(rx_data_i[i]),
      .valid_o  (in_valid),
      .error_o  (in_error),
      .data_o   (in_data)
    );

    gmii_receive u_receive (
      .clk_i     (rx_clk_i[i]),
      .rst_ni    (rx_rst_n),
      .valid_i   (in_valid),
      .error_i   (in_error),
      .data_i    (in_data),
      .m_tvalid_o(rx_valid[i]),
      .m_tdata_o (rx_data[i]),
      .m_tkeep_o (rx_keep[i]),
      .m_tlast_o (rx_last[i]),
      .m_tuser_o (rx_user[i])
    );

    gmii_send u_send (
      .clk_i     (tx_clk_i),
      .rst_ni    (tx_rst_n),
      .s_tvalid_i(tx_valid[i]),
      .s_tready_o(tx_ready[i]),
      .s_tdata_i (tx_data[i]),
      .s_tkeep_i (tx_keep[i]),
      .s_tlast_i (tx_last[i]),
      .s_tuser_i (tx_user[i]),
      .valid_o   (out_valid),
      .data_o    (out_data)
    );

    rgmii_send u_tx_pins (
      .clk_i    (tx_clk_i),
      .valid_i  (out_valid),
      .data_i   (out_data),
      .tx_clk_o (tx_clk_o[i]),
      .tx_ctl_o (tx_ctl_o[i]),
      .tx_data_o(tx_data_o[i])
    );

    led_pulse #(.Bits(LedBits)) u_in (
      .clk_i(rx_clk_i[i]), .rst_ni(rx_rst_n), .event_i(rx_valid[i] && rx_last[i]), .led_no(led_in_no[i])
    );
    led_pulse #(.Bits(LedBits)) u_damaged (
      .clk_i(rx_clk_i[i]), .rst_ni(rx_rst_n), .event_i(rx_valid[i] && rx_user[i]), .led_no(led_damaged_no[i])
    );
    led_pulse #(.Bits(LedBits)) u_out (
      .clk_i(tx_clk_i), .rst_ni(tx_rst_n), .event_i(out_valid), .led_no(led_out_no[i])
    );
  end

  start_settings u_settings (
    .clk_i,
    .rst_ni,
    .is_float_i,
    .awaddr_o (awaddr),
    .awvalid_o(awvalid),
    .awready_i(awready),
    .wdata_o  (wdata)
  );

  logic        unused_wready, unused_bvalid, unused_arready, unused_rvalid;
  logic [1:0]  unused_bresp, unused_rresp;
  logic [Ports-1:0] unused_rx_ready;  // MACs cannot wait
  logic [31:0] unused_rdata;

  // A cycle takes four times as long as at 200 MHz: a quarter of the cycles is the same time.
  netfold_switch #(
    .Ports          (Ports),
    .HasBfp         (1'b0),
    .AddressEntries (AddressEntries),
    .AddressTickBits(26),
    .TickCycles     (256),
    .QueueBeats     (QueueBeats),
    .PortBeats      (PortBeats),
    .MessagePackets (MessagePackets)
  ) u_switch (
    .clk_i,
    .rst_ni,
    .rx_clk_i,
    .s_rx_tvalid_i   (rx_valid),
    .s_rx_tdata_i    (rx_data),
    .s_rx_tkeep_i    (rx_keep),
    .s_rx_tlast_i    (rx_last),
    .s_rx_tuser_i    (rx_user),
    .s_rx_tready_o   (unused_rx_ready),
    .s_rx_dropped_i  ('0),
    .tx_clk_i        ({Ports{tx_clk_i}}),
    .m_tx_tvalid_o   (tx_valid),
    .m_tx_tready_i   (tx_ready),
    .m_tx_tdata_o    (tx_data),
    .m_tx_tkeep_o    (tx_keep),
    .m_tx_tlast_o    (tx_last),
    .m_tx_tuser_o    (tx_user),
    .s_axil_awaddr_i (awaddr),
    .s_axil_awvalid_i(awvalid),
    .s_axil_awready_o(awready),
    .s_axil_wdata_i  (wdata),
    .s_axil_wvalid_i (awvalid),
    .s_axil_wready_o (unused_wready),
    .s_axil_bresp_o  (unused_bresp),
    .s_axil_bvalid_o (unused_bvalid),
    .s_axil_bready_i (1'b1),
    .s_axil_araddr_i ('0),
    .s_axil_arvalid_i(1'b0),
    .s_axil_arready_o(unused_arready),
    .s_axil_rdata_o  (unused_rdata),
    .s_axil_rresp_o  (unused_rresp),
    .s_axil_rvalid_o (unused_rvalid),
    .s_axil_rready_i (1'b1),
    .spi_sclk_i,
    .spi_cs_ni,
    .spi_mosi_i,
    .spi_miso_o
  );

endmodule
