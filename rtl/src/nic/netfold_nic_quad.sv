// Four NICs of 16 lanes for 400 Gbit/s: one a port, each with its own ring, memory ports and registers. The driver deals
// the slices of a tensor out to them. With `Crosses` each port's Ethernet streams are in the clocks of its MAC. They may
// be faster than `clk_i` by up to a third. `clk_i` must carry the line's rate: at 250 MHz 16 lanes carry 128 Gbit/s, and
// a MAC for 100 Gbit/s has 322 MHz.
module netfold_nic_quad #(
  parameter int unsigned Ports      = 4,
  parameter int unsigned Lanes      = 16,
  parameter int unsigned Block      = 16,
  parameter int unsigned Mantissa   = 7,
  parameter bit          HasBfp     = 1'b1,
  parameter bit          Subnormals = 1'b1,
  parameter bit          Crosses    = 1'b0
) (
  input  logic                            clk_i,
  input  logic [Ports-1:0]                rx_clk_i,  // with Crosses: of s_eth_*
  input  logic [Ports-1:0]                tx_clk_i,  // ... of m_eth_*
  input  logic                            rst_ni,
  output logic [Ports-1:0]                interrupt_o,

  input  logic [Ports-1:0][11:0]          s_axil_awaddr_i,
  input  logic [Ports-1:0]                s_axil_awvalid_i,
  output logic [Ports-1:0]                s_axil_awready_o,
  input  logic [Ports-1:0][31:0]          s_axil_wdata_i,
  input  logic [Ports-1:0]                s_axil_wvalid_i,
  output logic [Ports-1:0]                s_axil_wready_o,
  output logic [Ports-1:0][1:0]           s_axil_bresp_o,
  output logic [Ports-1:0]                s_axil_bvalid_o,
  input  logic [Ports-1:0]                s_axil_bready_i,
  input  logic [Ports-1:0][11:0]          s_axil_araddr_i,
  input  logic [Ports-1:0]                s_axil_arvalid_i,
  output logic [Ports-1:0]                s_axil_arready_o,
  output logic [Ports-1:0][31:0]          s_axil_rdata_o,
  output logic [Ports-1:0][1:0]           s_axil_rresp_o,
  output logic [Ports-1:0]                s_axil_rvalid_o,
  input  logic [Ports-1:0]                s_axil_rready_i,

  output logic [Ports-1:0]                m_read_command_tvalid_o,
  input  logic [Ports-1:0]                m_read_command_tready_i,
  output logic [Ports-1:0][63:0]          m_read_command_address_o,
  output logic [Ports-1:0][15:0]          m_read_command_bytes_o,
  input  logic [Ports-1:0]                s_read_tvalid_i,
  output logic [Ports-1:0]                s_read_tready_o,
  input  logic [Ports-1:0][32*Lanes-1:0]  s_read_tdata_i,

  output logic [Ports-1:0]                m_write_command_tvalid_o,
  input  logic [Ports-1:0]                m_write_command_tready_i,
  output logic [Ports-1:0][63:0]          m_write_command_address_o,
  output logic [Ports-1:0][15:0]          m_write_command_bytes_o,
  output logic [Ports-1:0]                m_write_tvalid_o,
  input  logic [Ports-1:0]                m_write_tready_i,
  output logic [Ports-1:0][32*Lanes-1:0]  m_write_tdata_o,
  output logic [Ports-1:0][4*Lanes-1:0]   m_write_tkeep_o,
  output logic [Ports-1:0]                m_write_tlast_o,
  input  logic [Ports-1:0]                written_i,

  input  logic [Ports-1:0]                s_eth_tvalid_i,
  input  logic [Ports-1:0][32*Lanes-1:0]  s_eth_tdata_i,
  input  logic [Ports-1:0]                s_eth_tlast_i,
  input  logic [Ports-1:0]                s_eth_tuser_i,
  output logic [Ports-1:0]                m_eth_tvalid_o,
  input  logic [Ports-1:0]                m_eth_tready_i,
  output logic [Ports-1:0][32*Lanes-1:0]  m_eth_tdata_o,
  output logic [Ports-1:0]                m_eth_tlast_o
);

  localparam int unsigned Width        = 32 * Lanes;
  localparam int unsigned PayloadBeats = 352 / Lanes;  // 1408 bytes, as in netfold_nic

  for (genvar i = 0; i < Ports; i++) begin : gen_port
    logic             rx_valid, rx_last, rx_error, tx_valid, tx_ready, tx_last;
    logic [Width-1:0] rx_data, tx_data;

    if (Crosses) begin : gen_cross
      logic             rx_rst_n, tx_rst_n, rx_has_room, crossed_valid, crossed_ready, crossed_last;
      logic [Width-1:0] crossed_data;
      logic             unused_room;
      assign unused_room = rx_has_room;  // a MAC cannot wait

      reset_sync u_rx_reset (.clk_i(rx_clk_i[i]), .rst_ni, .rst_no(rx_rst_n));
      reset_sync u_tx_reset (.clk_i(tx_clk_i[i]), .rst_ni, .rst_no(tx_rst_n));

      frame_cross #(
        .Width(Width)
      ) u_receive (
        .s_clk_i  (rx_clk_i[i]),
        .s_rst_ni (rx_rst_n),
        .s_valid_i(s_eth_tvalid_i[i]),
        .s_ready_o(rx_has_room),
        .s_last_i (s_eth_tlast_i[i]),
        .s_error_i(s_eth_tuser_i[i]),
        .s_data_i (s_eth_tdata_i[i]),
        .m_clk_i  (clk_i),
        .m_rst_ni (rst_ni),
        .m_valid_o(rx_valid),
        .m_ready_i(1'b1),
        .m_last_o (rx_last),
        .m_error_o(rx_error),
        .m_data_o (rx_data)
      );

      cross_fifo #(
        .Width(Width + 1)
      ) u_send (
        .s_clk_i  (clk_i),
        .s_rst_ni (rst_ni),
        .s_valid_i(tx_valid),
        .s_ready_o(tx_ready),
        .s_data_i ({tx_last, tx_data}),
        .m_clk_i  (tx_clk_i[i]),
        .m_rst_ni (tx_rst_n),
        .m_valid_o(crossed_valid),
        .m_ready_i(crossed_ready),
        .m_data_o ({crossed_last, crossed_data})
      );

      frame_gate #(
        .Width     (Width),
        .FrameBeats(PayloadBeats + 1)  // a header before it
      ) u_gate (
        .clk_i    (tx_clk_i[i]),
        .rst_ni   (tx_rst_n),
        .s_valid_i(crossed_valid),
        .s_ready_o(crossed_ready),
        .s_last_i (crossed_last),
        .s_data_i (crossed_data),
        .m_valid_o(m_eth_tvalid_o[i]),
        .m_ready_i(m_eth_tready_i[i]),
        .m_last_o (m_eth_tlast_o[i]),
        .m_data_o (m_eth_tdata_o[i])
      );
    end else begin : gen_one_clock
      logic unused_clocks;
      assign unused_clocks = ^{rx_clk_i[i], tx_clk_i[i]};

      assign rx_valid          = s_eth_tvalid_i[i];
      assign rx_last           = s_eth_tlast_i[i];
      assign rx_error          = s_eth_tuser_i[i];
      assign rx_data           = s_eth_tdata_i[i];
      assign tx_ready          = m_eth_tready_i[i];
      assign m_eth_tvalid_o[i] = tx_valid;
      assign m_eth_tlast_o[i]  = tx_last;
      assign m_eth_tdata_o[i]  = tx_data;
    end

    netfold_nic #(
      .Lanes       (Lanes),
      .Block       (Block),
      .Mantissa    (Mantissa),
      .HasBfp      (HasBfp),
      .Subnormals  (Subnormals),
      .PayloadBeats(PayloadBeats)
    ) u_nic (
      .clk_i,
      .rst_ni,
      .interrupt_o              (interrupt_o[i]),
      .s_axil_awaddr_i          (s_axil_awaddr_i[i]),
      .s_axil_awvalid_i         (s_axil_awvalid_i[i]),
      .s_axil_awready_o         (s_axil_awready_o[i]),
      .s_axil_wdata_i           (s_axil_wdata_i[i]),
      .s_axil_wvalid_i          (s_axil_wvalid_i[i]),
      .s_axil_wready_o          (s_axil_wready_o[i]),
      .s_axil_bresp_o           (s_axil_bresp_o[i]),
      .s_axil_bvalid_o          (s_axil_bvalid_o[i]),
      .s_axil_bready_i          (s_axil_bready_i[i]),
      .s_axil_araddr_i          (s_axil_araddr_i[i]),
      .s_axil_arvalid_i         (s_axil_arvalid_i[i]),
      .s_axil_arready_o         (s_axil_arready_o[i]),
      .s_axil_rdata_o           (s_axil_rdata_o[i]),
      .s_axil_rresp_o           (s_axil_rresp_o[i]),
      .s_axil_rvalid_o          (s_axil_rvalid_o[i]),
      .s_axil_rready_i          (s_axil_rready_i[i]),
      .m_read_command_tvalid_o  (m_read_command_tvalid_o[i]),
      .m_read_command_tready_i  (m_read_command_tready_i[i]),
      .m_read_command_address_o (m_read_command_address_o[i]),
      .m_read_command_bytes_o   (m_read_command_bytes_o[i]),
      .s_read_tvalid_i          (s_read_tvalid_i[i]),
      .s_read_tready_o          (s_read_tready_o[i]),
      .s_read_tdata_i           (s_read_tdata_i[i]),
      .m_write_command_tvalid_o (m_write_command_tvalid_o[i]),
      .m_write_command_tready_i (m_write_command_tready_i[i]),
      .m_write_command_address_o(m_write_command_address_o[i]),
      .m_write_command_bytes_o  (m_write_command_bytes_o[i]),
      .m_write_tvalid_o         (m_write_tvalid_o[i]),
      .m_write_tready_i         (m_write_tready_i[i]),
      .m_write_tdata_o          (m_write_tdata_o[i]),
      .m_write_tkeep_o          (m_write_tkeep_o[i]),
      .m_write_tlast_o          (m_write_tlast_o[i]),
      .written_i                (written_i[i]),
      .s_eth_tvalid_i           (rx_valid),
      .s_eth_tdata_i            (rx_data),
      .s_eth_tlast_i            (rx_last),
      .s_eth_tuser_i            (rx_error),
      .m_eth_tvalid_o           (tx_valid),
      .m_eth_tready_i           (tx_ready),
      .m_eth_tdata_o            (tx_data),
      .m_eth_tlast_o            (tx_last)
    );
  end

endmodule
