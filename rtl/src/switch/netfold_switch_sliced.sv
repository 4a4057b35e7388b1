// The aggregation switch with ports of 25G or 100G: several switches of 10G side by side, the slices. A frame passes
// through one of them (slice_choice), as through one link of an aggregated link. The slices share nothing: each has its
// own MAC table, jobs and registers (docs/explanation/hardware-switch.md, "Ports of 25G and 100G").
//
// 100G: 8 slices, 512 bits, MACs of 322.265625 MHz. 25G: 2 slices, 128 bits at 195.3125 MHz or 64 at 390.625.
module netfold_switch_sliced
  import switch_pkg::*;
#(
  parameter int unsigned Ports           = 4,     // 2 to 16
  parameter int unsigned Slices          = 8,     // a power of two, 2 to 128
  parameter int unsigned Width           = 512,   // of a MAC: a power of two, 64 to 512
  parameter int unsigned InputBytes      = 32768,  // a slice's queue behind a MAC: at 512 bits it fills its block RAMs
  parameter int unsigned OutputBytes     = 4096,   // a slice's queue before a MAC
  // Of each slice, as in netfold_switch.
  parameter int unsigned Jobs            = 1,
  parameter bit          HasBfp          = 1'b1,
  parameter bit          HasHalf         = 1'b0,
  parameter int unsigned AddressEntries  = 4096,
  parameter int unsigned AddressTickBits = 28,
  parameter int unsigned TickCycles      = 1024,
  parameter int unsigned QueueBeats      = 1024,
  parameter int unsigned PortBeats       = 4096,
  parameter int unsigned MessagePackets  = MessagePacketsMax,
  localparam int unsigned AddressWidth = 13 + $clog2(Slices) + 1
) (
  input  logic                          clk_i,  // of the slices
  input  logic                          rst_ni,

  // Ethernet frames without their FCS, from and to the MACs. A MAC gives a frame's beats full but for the last.
  input  logic [Ports-1:0]              rx_clk_i,
  input  logic [Ports-1:0]              s_rx_tvalid_i,
  input  logic [Ports-1:0][Width-1:0]   s_rx_tdata_i,
  input  logic [Ports-1:0][Width/8-1:0] s_rx_tkeep_i,
  input  logic [Ports-1:0]              s_rx_tlast_i,
  input  logic [Ports-1:0]              s_rx_tuser_i,  // with the last beat: a damaged frame
  input  logic [Ports-1:0]              tx_clk_i,
  output logic [Ports-1:0]              m_tx_tvalid_o,
  input  logic [Ports-1:0]              m_tx_tready_i,
  output logic [Ports-1:0][Width-1:0]   m_tx_tdata_o,
  output logic [Ports-1:0][Width/8-1:0] m_tx_tkeep_o,
  output logic [Ports-1:0]              m_tx_tlast_o,
  output logic [Ports-1:0]              m_tx_tuser_o,  // with the last beat: to be sent damaged

  // AXI-Lite: 13 bits of a slice's register, the slice, and a bit that writes to all of them.
  input  logic [AddressWidth-1:0]       s_axil_awaddr_i,
  input  logic                          s_axil_awvalid_i,
  output logic                          s_axil_awready_o,
  input  logic [31:0]                   s_axil_wdata_i,
  input  logic                          s_axil_wvalid_i,
  output logic                          s_axil_wready_o,
  output logic [1:0]                    s_axil_bresp_o,
  output logic                          s_axil_bvalid_o,
  input  logic                          s_axil_bready_i,
  input  logic [AddressWidth-1:0]       s_axil_araddr_i,
  input  logic                          s_axil_arvalid_i,
  output logic                          s_axil_arready_o,
  output logic [31:0]                   s_axil_rdata_o,
  output logic [1:0]                    s_axil_rresp_o,
  output logic                          s_axil_rvalid_o,
  input  logic                          s_axil_rready_i
);

  // --- Between the ports and the slices, by slice and port ---
  logic [Slices-1:0][Ports-1:0]       in_valid, in_ready, in_last, in_user, out_valid, out_ready, out_last, out_user;
  logic [Slices-1:0][Ports-1:0][63:0] in_data, out_data;
  logic [Slices-1:0][Ports-1:0][7:0]  in_keep, out_keep;
  logic [Slices-1:0][Ports-1:0][5:0]  in_dropped;

  for (genvar port = 0; port < Ports; port++) begin : gen_port
    logic                    rx_rst_n, tx_rst_n;
    logic [Slices-1:0]       to_valid, to_ready, to_last, to_user, from_valid, from_ready, from_last, from_user;
    logic [Slices-1:0][63:0] to_data, from_data;
    logic [Slices-1:0][7:0]  to_keep, from_keep;
    logic [Slices-1:0][5:0]  to_dropped;

    reset_sync u_rx_reset (.clk_i(rx_clk_i[port]), .rst_ni, .rst_no(rx_rst_n));
    reset_sync u_tx_reset (.clk_i(tx_clk_i[port]), .rst_ni, .rst_no(tx_rst_n));

    slice_distributor #(
      .Slices    (Slices),
      .Width     (Width),
      .QueueBytes(InputBytes)
    ) u_distributor (
      .mac_clk_i  (rx_clk_i[port]),
      .mac_rst_ni (rx_rst_n),
      .s_tvalid_i (s_rx_tvalid_i[port]),
      .s_tdata_i  (s_rx_tdata_i[port]),
      .s_tkeep_i  (s_rx_tkeep_i[port]),
      .s_tlast_i  (s_rx_tlast_i[port]),
      .s_tuser_i  (s_rx_tuser_i[port]),
      .clk_i,
      .rst_ni,
      .m_tvalid_o (to_valid),
      .m_tready_i (to_ready),
      .m_tdata_o  (to_data),
      .m_tkeep_o  (to_keep),
      .m_tlast_o  (to_last),
      .m_tuser_o  (to_user),
      .m_dropped_o(to_dropped)
    );

    slice_merger #(
      .Slices    (Slices),
      .Width     (Width),
      .QueueBytes(OutputBytes)
    ) u_merger (
      .clk_i,
      .rst_ni,
      .s_tvalid_i(from_valid),
      .s_tready_o(from_ready),
      .s_tdata_i (from_data),
      .s_tkeep_i (from_keep),
      .s_tlast_i (from_last),
      .s_tuser_i (from_user),
      .mac_clk_i (tx_clk_i[port]),
      .mac_rst_ni(tx_rst_n),
      .m_tvalid_o(m_tx_tvalid_o[port]),
      .m_tready_i(m_tx_tready_i[port]),
      .m_tdata_o (m_tx_tdata_o[port]),
      .m_tkeep_o (m_tx_tkeep_o[port]),
      .m_tlast_o (m_tx_tlast_o[port]),
      .m_tuser_o (m_tx_tuser_o[port])
    );

    for (genvar i = 0; i < Slices; i++) begin : gen_side
      // A beat is offered when it is taken: a port of netfold_switch takes it as from a MAC.
      assign in_valid[i][port]   = to_valid[i] && in_ready[i][port];
      assign to_ready[i]         = in_ready[i][port];
      assign in_data[i][port]    = to_data[i];
      assign in_keep[i][port]    = to_keep[i];
      assign in_last[i][port]    = to_last[i];
      assign in_user[i][port]    = to_user[i];
      assign in_dropped[i][port] = to_dropped[i];
      assign from_valid[i]       = out_valid[i][port];
      assign out_ready[i][port]  = from_ready[i];
      assign from_data[i]        = out_data[i][port];
      assign from_keep[i]        = out_keep[i][port];
      assign from_last[i]        = out_last[i][port];
      assign from_user[i]        = out_user[i][port];
    end
  end

  // --- Registers ---
  logic [Slices-1:0]       awvalid, awready, wready, bvalid, arvalid, arready, rvalid;
  logic [Slices-1:0][1:0]  bresp, rresp;
  logic [Slices-1:0][31:0] rdata;

  slice_access #(
    .Slices(Slices)
  ) u_access (
    .clk_i,
    .rst_ni,
    .awaddr_i   (s_axil_awaddr_i),
    .awvalid_i  (s_axil_awvalid_i),
    .awready_o  (s_axil_awready_o),
    .wvalid_i   (s_axil_wvalid_i),
    .wready_o   (s_axil_wready_o),
    .bresp_o    (s_axil_bresp_o),
    .bvalid_o   (s_axil_bvalid_o),
    .bready_i   (s_axil_bready_i),
    .araddr_i   (s_axil_araddr_i),
    .arvalid_i  (s_axil_arvalid_i),
    .arready_o  (s_axil_arready_o),
    .rdata_o    (s_axil_rdata_o),
    .rresp_o    (s_axil_rresp_o),
    .rvalid_o   (s_axil_rvalid_o),
    .rready_i   (s_axil_rready_i),
    .m_awvalid_o(awvalid),
    .m_awready_i(awready),
    .m_bresp_i  (bresp),
    .m_bvalid_i (bvalid),
    .m_arvalid_o(arvalid),
    .m_arready_i(arready),
    .m_rdata_i  (rdata),
    .m_rresp_i  (rresp),
    .m_rvalid_i (rvalid)
  );

  for (genvar i = 0; i < Slices; i++) begin : gen_slice
    logic unused_outputs, spi_miso;

    assign unused_outputs = wready[i] ^ spi_miso;  // wready is awready

    netfold_switch #(
      .Ports          (Ports),
      .Jobs           (Jobs),
      .HasBfp         (HasBfp),
      .HasHalf        (HasHalf),
      .Crossings      (1'b0),
      .IsSlice        (1'b1),
      .AddressEntries (AddressEntries),
      .AddressTickBits(AddressTickBits),
      .TickCycles     (TickCycles),
      .QueueBeats     (QueueBeats),
      .PortBeats      (PortBeats),
      .MessagePackets (MessagePackets)
    ) u_switch (
      .clk_i,
      .rst_ni,
      .rx_clk_i        ('0),
      .s_rx_tvalid_i   (in_valid[i]),
      .s_rx_tdata_i    (in_data[i]),
      .s_rx_tkeep_i    (in_keep[i]),
      .s_rx_tlast_i    (in_last[i]),
      .s_rx_tuser_i    (in_user[i]),
      .s_rx_tready_o   (in_ready[i]),
      .s_rx_dropped_i  (in_dropped[i]),
      .tx_clk_i        ('0),
      .m_tx_tvalid_o   (out_valid[i]),
      .m_tx_tready_i   (out_ready[i]),
      .m_tx_tdata_o    (out_data[i]),
      .m_tx_tkeep_o    (out_keep[i]),
      .m_tx_tlast_o    (out_last[i]),
      .m_tx_tuser_o    (out_user[i]),
      .s_axil_awaddr_i (s_axil_awaddr_i[12:0]),
      .s_axil_awvalid_i(awvalid[i]),
      .s_axil_awready_o(awready[i]),
      .s_axil_wdata_i  (s_axil_wdata_i),
      .s_axil_wvalid_i (awvalid[i]),
      .s_axil_wready_o (wready[i]),
      .s_axil_bresp_o  (bresp[i]),
      .s_axil_bvalid_o (bvalid[i]),
      .s_axil_bready_i (1'b1),
      .s_axil_araddr_i (s_axil_araddr_i[12:0]),
      .s_axil_arvalid_i(arvalid[i]),
      .s_axil_arready_o(arready[i]),
      .s_axil_rdata_o  (rdata[i]),
      .s_axil_rresp_o  (rresp[i]),
      .s_axil_rvalid_o (rvalid[i]),
      .s_axil_rready_i (1'b1),
      .spi_sclk_i      (1'b0),
      .spi_cs_ni       (1'b1),
      .spi_mosi_i      (1'b0),
      .spi_miso_o      (spi_miso)
    );
  end

endmodule
