// The smart NIC: ring all-reduce with block floating point, as one box with flat ports. Below its memory ports belongs
// a DMA engine, behind its Ethernet streams a MAC (docs/how-to/bring-up-the-nic.md).
//
// Lanes: 8 at 256 bits for 40 Gbit/s, 16 at 512 bits for 100 Gbit/s; netfold_nic_quad holds four of those.
module netfold_nic
  import nic_pkg::*;
  import nic_registers_pkg::*;
#(
  parameter int unsigned Lanes        = 8,
  parameter int unsigned Block        = 16,
  parameter int unsigned Mantissa     = 7,
  parameter bit          HasBfp       = 1'b1,
  parameter bit          Subnormals   = 1'b1,
  parameter int unsigned PayloadBeats = 352 / Lanes,   // 1408 bytes: a frame fits an MTU of 1500
  parameter int unsigned ChunkBeats   = 4096 / Lanes,  // 16 KiB; longer than a hop takes
  parameter int unsigned RxBeats      = 4 * ChunkBeats,
  parameter int unsigned ReplaySlots  = 32,
  parameter int unsigned HostBeats    = 2048 / Lanes,  // input FIFO and output FIFO, 8 KiB each
  parameter int unsigned BurstBeats   = 128 / Lanes    // 512 bytes
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  output logic                interrupt_o,

  // Registers, AXI-Lite.
  input  logic [11:0]         s_axil_awaddr_i,
  input  logic                s_axil_awvalid_i,
  output logic                s_axil_awready_o,
  input  logic [31:0]         s_axil_wdata_i,
  input  logic                s_axil_wvalid_i,
  output logic                s_axil_wready_o,
  output logic [1:0]          s_axil_bresp_o,
  output logic                s_axil_bvalid_o,
  input  logic                s_axil_bready_i,
  input  logic [11:0]         s_axil_araddr_i,
  input  logic                s_axil_arvalid_i,
  output logic                s_axil_arready_o,
  output logic [31:0]         s_axil_rdata_o,
  output logic [1:0]          s_axil_rresp_o,
  output logic                s_axil_rvalid_o,
  input  logic                s_axil_rready_i,

  // Reading host memory: commands, and their data in order.
  output logic                m_read_command_tvalid_o,
  input  logic                m_read_command_tready_i,
  output logic [63:0]         m_read_command_address_o,
  output logic [15:0]         m_read_command_bytes_o,
  input  logic                s_read_tvalid_i,
  output logic                s_read_tready_o,
  input  logic [32*Lanes-1:0] s_read_tdata_i,

  // Writing host memory: commands, their data in order, and a pulse for each command that is done.
  output logic                m_write_command_tvalid_o,
  input  logic                m_write_command_tready_i,
  output logic [63:0]         m_write_command_address_o,
  output logic [15:0]         m_write_command_bytes_o,
  output logic                m_write_tvalid_o,
  input  logic                m_write_tready_i,
  output logic [32*Lanes-1:0] m_write_tdata_o,
  output logic [4*Lanes-1:0]  m_write_tkeep_o,
  output logic                m_write_tlast_o,
  input  logic                written_i,

  // Ethernet frames without their checksum, from and to the MAC.
  input  logic                s_eth_tvalid_i,
  input  logic [32*Lanes-1:0] s_eth_tdata_i,
  input  logic                s_eth_tlast_i,
  input  logic                s_eth_tuser_i,   // with the last beat: a damaged frame
  output logic                m_eth_tvalid_o,
  input  logic                m_eth_tready_i,
  output logic [32*Lanes-1:0] m_eth_tdata_o,
  output logic                m_eth_tlast_o
);

  localparam int unsigned DataWidth = 32 * Lanes;
  localparam int unsigned Requests  = 16;
  localparam int unsigned RoomWidth = $clog2(Requests + 1);

  logic                    enable, soft_reset, ring_ok, drain, idle, datapath_rst_n, link_rst_nq;
  logic                    post, completion_valid, completion_taken, ready, failed, busy, resetting;
  logic                    start_valid, start_ready, ended, moves, folded, malformed, mismatch;
  logic                    operation_valid, operation_ready;
  ring_t                   ring;
  request_t                request;
  span_t                   start;
  completion_t             completion;
  operation_t              operation;
  status_e                 reason;
  logic [31:0]             request_timeout, link_timeout;
  logic [RoomWidth-1:0]    room;
  logic [Counters-1:0]     count, count_q;
  link_pkg::identity_t     identity;
  link_pkg::neighbours_t   neighbours;
  link_pkg::send_events_t  send_events;
  link_pkg::receive_events_t receive_events;
  link_pkg::ack_t          heard, say;
  logic                    heard_valid, say_valid, say_ready, link_idle;
  logic                    left_valid, left_ready, left_last, right_valid, right_ready, right_last;
  logic [DataWidth-1:0]    left_data, right_data;

  nic_registers #(
    .Lanes    (Lanes),
    .Block    (Block),
    .Mantissa (Mantissa),
    .HasBfp   (HasBfp),
    .RoomWidth(RoomWidth)
  ) u_registers (
    .clk_i,
    .rst_ni,
    .awaddr_i          (s_axil_awaddr_i),
    .awvalid_i         (s_axil_awvalid_i),
    .awready_o         (s_axil_awready_o),
    .wdata_i           (s_axil_wdata_i),
    .wvalid_i          (s_axil_wvalid_i),
    .wready_o          (s_axil_wready_o),
    .bresp_o           (s_axil_bresp_o),
    .bvalid_o          (s_axil_bvalid_o),
    .bready_i          (s_axil_bready_i),
    .araddr_i          (s_axil_araddr_i),
    .arvalid_i         (s_axil_arvalid_i),
    .arready_o         (s_axil_arready_o),
    .rdata_o           (s_axil_rdata_o),
    .rresp_o           (s_axil_rresp_o),
    .rvalid_o          (s_axil_rvalid_o),
    .rready_i          (s_axil_rready_i),
    .enable_o          (enable),
    .ring_o            (ring),
    .identity_o        (identity),
    .neighbours_o      (neighbours),
    .request_timeout_o (request_timeout),
    .link_timeout_o    (link_timeout),
    .soft_reset_o      (soft_reset),
    .post_o            (post),
    .request_o         (request),
    .room_i            (room),
    .completion_valid_i(completion_valid),
    .completion_taken_o(completion_taken),
    .completion_i      (completion),
    .ready_i           (ready),
    .failed_i          (failed),
    .busy_i            (busy),
    .resetting_i       (resetting),
    .reason_i          (reason),
    .link_idle_i       (link_idle),
    .count_i           (count_q)
  );

  assign ring_ok     = ring.size >= 6'd2 && ring.size <= 6'd32 && ring.position < ring.size;
  assign interrupt_o = completion_valid;

  nic_control #(
    .Requests(Requests)
  ) u_control (
    .clk_i,
    .rst_ni,
    .enable_i          (enable),
    .ring_ok_i         (ring_ok),
    .soft_reset_i      (soft_reset),
    .timeout_i         (request_timeout),
    .post_i            (post),
    .request_i         (request),
    .room_o            (room),
    .completion_valid_o(completion_valid),
    .completion_taken_i(completion_taken),
    .completion_o      (completion),
    .start_valid_o     (start_valid),
    .start_ready_i     (start_ready),
    .start_o           (start),
    .ended_i           (ended),
    .moves_i           (moves),
    .mismatch_i        (mismatch),
    .idle_i            (idle),
    .drain_o           (drain),
    .datapath_rst_no   (datapath_rst_n),
    .busy_o            (busy),
    .ready_o           (ready),
    .failed_o          (failed),
    .resetting_o       (resetting),
    .reason_o          (reason)
  );

  ring_plan #(
    .Lanes     (Lanes),
    .Block     (HasBfp ? Block : 16),
    .ChunkBeats(ChunkBeats)
  ) u_plan (
    .clk_i,
    .rst_ni           (datapath_rst_n),
    .ring_i           (ring),
    .request_valid_i  (start_valid),
    .request_ready_o  (start_ready),
    .request_i        (start),
    .operation_valid_o(operation_valid),
    .operation_ready_i(operation_ready),
    .operation_o      (operation)
  );

  ring_datapath #(
    .Lanes     (Lanes),
    .Block     (Block),
    .Mantissa  (Mantissa),
    .HasBfp    (HasBfp),
    .Subnormals(Subnormals),
    .FifoDepth (HostBeats),
    .BurstBeats(BurstBeats)
  ) u_datapath (
    .clk_i,
    .rst_ni                 (datapath_rst_n),
    .drain_i                (drain),
    .idle_o                 (idle),
    .bfp_i                  (ring.bfp),
    .operation_valid_i      (operation_valid),
    .operation_ready_o      (operation_ready),
    .operation_i            (operation),
    .ended_o                (ended),
    .read_command_valid_o   (m_read_command_tvalid_o),
    .read_command_ready_i   (m_read_command_tready_i),
    .read_command_address_o (m_read_command_address_o),
    .read_command_bytes_o   (m_read_command_bytes_o),
    .read_tvalid_i          (s_read_tvalid_i),
    .read_tready_o          (s_read_tready_o),
    .read_tdata_i           (s_read_tdata_i),
    .write_command_valid_o  (m_write_command_tvalid_o),
    .write_command_ready_i  (m_write_command_tready_i),
    .write_command_address_o(m_write_command_address_o),
    .write_command_bytes_o  (m_write_command_bytes_o),
    .write_tvalid_o         (m_write_tvalid_o),
    .write_tready_i         (m_write_tready_i),
    .write_tdata_o          (m_write_tdata_o),
    .write_tkeep_o          (m_write_tkeep_o),
    .write_tlast_o          (m_write_tlast_o),
    .written_i,
    .left_tvalid_i          (left_valid),
    .left_tready_o          (left_ready),
    .left_tdata_i           (left_data),
    .left_tlast_i           (left_last),
    .right_tvalid_o         (right_valid),
    .right_tready_i         (right_ready),
    .right_tdata_o          (right_data),
    .right_tlast_o          (right_last),
    .moves_o                (moves),
    .folded_o               (folded),
    .malformed_o            (malformed),
    .mismatch_o             (mismatch)
  );

  // The link is forgotten when the device is not enabled; a soft reset disables it. The frame that is on its way to the
  // MAC ends first: a MAC knows no frame without an end.
  logic link_stops, link_stops_q, link_stopped;

  assign link_stops = !enable || link_stops_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      link_rst_nq  <= 1'b0;
      link_stops_q <= 1'b0;
    end else begin
      link_rst_nq  <= !(link_stops && link_stopped);
      link_stops_q <= link_stops && !link_stopped;
    end
  end

  link_receive #(
    .DataWidth   (DataWidth),
    .PayloadBeats(PayloadBeats),
    .Depth       (RxBeats)
  ) u_receive (
    .clk_i,
    .rst_ni       (link_rst_nq),
    .identity_i   (identity),
    .s_tvalid_i   (s_eth_tvalid_i),
    .s_tdata_i    (s_eth_tdata_i),
    .s_tlast_i    (s_eth_tlast_i),
    .s_tuser_i    (s_eth_tuser_i),
    .m_tvalid_o   (left_valid),
    .m_tready_i   (left_ready),
    .m_tdata_o    (left_data),
    .m_tlast_o    (left_last),
    .heard_valid_o(heard_valid),
    .heard_o      (heard),
    .say_valid_o  (say_valid),
    .say_ready_i  (say_ready),
    .say_o        (say),
    .events_o     (receive_events)
  );

  link_send #(
    .DataWidth   (DataWidth),
    .PayloadBeats(PayloadBeats),
    .Slots       (ReplaySlots),
    .FirstLimit  (RxBeats >> $clog2(PayloadBeats))  // all devices of a ring are alike
  ) u_send (
    .clk_i,
    .rst_ni       (link_rst_nq),
    .identity_i   (identity),
    .neighbours_i (neighbours),
    .timeout_i    (link_timeout),
    .stop_i       (link_stops),
    .stopped_o    (link_stopped),
    .s_tvalid_i   (right_valid),
    .s_tready_o   (right_ready),
    .s_tdata_i    (right_data),
    .s_tlast_i    (right_last),
    .heard_valid_i(heard_valid),
    .heard_i      (heard),
    .say_valid_i  (say_valid),
    .say_ready_o  (say_ready),
    .say_i        (say),
    .m_tvalid_o   (m_eth_tvalid_o),
    .m_tready_i   (m_eth_tready_i),
    .m_tdata_o    (m_eth_tdata_o),
    .m_tlast_o    (m_eth_tlast_o),
    .idle_o       (link_idle),
    .events_o     (send_events)
  );

  always_comb begin
    count                      = '0;
    count[CountFramesSent]     = send_events.sent;
    count[CountFramesResent]   = send_events.resent;
    count[CountFramesReceived] = receive_events.received;
    count[CountAcksSent]       = send_events.ack;
    count[CountAcksReceived]   = receive_events.acknowledged;
    count[CountLinkTimeouts]   = send_events.timeout;
    count[CountCyclesPaused]   = send_events.paused;
    count[CountDropsForeign]   = receive_events.drop_foreign;
    count[CountDropsLength]    = receive_events.drop_length;
    count[CountDropsCrc]       = receive_events.drop_crc;
    count[CountDropsGap]       = receive_events.drop_gap;
    count[CountDropsDuplicate] = receive_events.drop_duplicate;
    count[CountDropsFull]      = receive_events.drop_full;
    count[CountBeatsMalformed] = malformed;
    count[CountBeatsFolded]    = folded;
    count[CountRequestsDone]   = completion_taken && completion_valid && completion.status == StatusDone;
    count[CountRequestsFailed] = completion_taken && completion_valid && completion.status != StatusDone;
    count[CountCyclesBusy]     = busy;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      count_q <= '0;
    end else begin
      count_q <= count;
    end
  end

endmodule
