// The registers, behind AXI-Lite: settings, the request being written, completions, counters. One access at a time.
// The map is rtl/registers.toml.
module nic_registers
  import nic_pkg::*;
  import nic_registers_pkg::*;
#(
  parameter int unsigned Lanes     = 8,
  parameter int unsigned Block     = 16,
  parameter int unsigned Mantissa  = 7,
  parameter bit          HasBfp    = 1'b1,
  parameter int unsigned RoomWidth = 5
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,

  input  logic [11:0]             awaddr_i,
  input  logic                    awvalid_i,
  output logic                    awready_o,
  input  logic [31:0]             wdata_i,
  input  logic                    wvalid_i,
  output logic                    wready_o,
  output logic [1:0]              bresp_o,
  output logic                    bvalid_o,
  input  logic                    bready_i,
  input  logic [11:0]             araddr_i,
  input  logic                    arvalid_i,
  output logic                    arready_o,
  output logic [31:0]             rdata_o,
  output logic [1:0]              rresp_o,
  output logic                    rvalid_o,
  input  logic                    rready_i,

  output logic                    enable_o,
  output ring_t                   ring_o,
  output link_pkg::identity_t     identity_o,
  output link_pkg::neighbours_t   neighbours_o,
  output logic [31:0]             request_timeout_o,
  output logic [31:0]             link_timeout_o,
  output logic                    soft_reset_o,

  output logic                    post_o,
  output request_t                request_o,
  input  logic [RoomWidth-1:0]    room_i,
  input  logic                    completion_valid_i,
  output logic                    completion_taken_o,
  input  completion_t             completion_i,

  input  logic                    ready_i,
  input  logic                    failed_i,
  input  logic                    busy_i,
  input  logic                    resetting_i,
  input  status_e                 reason_i,
  input  logic                    link_idle_i,
  input  logic [Counters-1:0]     count_i       // events, one bit a counter
);

  localparam logic [1:0] Okay       = 2'b00;
  localparam logic [1:0] SlaveError = 2'b10;

  // --- Writing ---
  logic        write, has_room, bvalid_q;
  logic [1:0]  bresp_q;
  logic        enable_q, soft_reset_q, post_q;
  ring_t       ring_q;
  request_t    request_q;
  logic [31:0] request_timeout_q, link_timeout_q;
  link_pkg::identity_t   identity_q;
  link_pkg::neighbours_t neighbours_q;

  assign write     = awvalid_i && wvalid_i && !bvalid_q;
  assign awready_o = write;
  assign wready_o  = write;
  assign bvalid_o  = bvalid_q;
  assign bresp_o   = bresp_q;
  assign has_room  = room_i > RoomWidth'(post_q);  // one just posted is not counted yet

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      bvalid_q          <= 1'b0;
      bresp_q           <= Okay;
      enable_q          <= 1'b0;
      ring_q            <= '0;
      identity_q        <= '0;
      neighbours_q      <= '0;
      request_q         <= '0;
      soft_reset_q      <= 1'b0;
      post_q            <= 1'b0;
      request_timeout_q <= ResetRequestTimeout;
      link_timeout_q    <= ResetLinkTimeout;
    end else begin
      bvalid_q     <= write || (bvalid_q && !bready_i);
      soft_reset_q <= 1'b0;
      post_q       <= 1'b0;
      if (write) begin
        bresp_q <= Okay;
        unique case (awaddr_i)
          OffsetControl: begin
            enable_q     <= wdata_i[0] && !wdata_i[2];
            ring_q.bfp   <= wdata_i[1] && HasBfp;
            soft_reset_q <= wdata_i[2];
          end
          OffsetRing: begin
            ring_q.position <= wdata_i[5:0];
            ring_q.size     <= wdata_i[13:8];
          end
          OffsetIdentity: begin
            identity_q.ring  <= wdata_i[15:0];
            identity_q.epoch <= wdata_i[23:16];
          end
          OffsetRequestTimeout:         request_timeout_q <= wdata_i;
          OffsetLinkTimeout:            link_timeout_q <= wdata_i;
          OffsetOwnAddressLow:          identity_q.address[31:0] <= wdata_i;
          OffsetOwnAddressHigh:         identity_q.address[47:32] <= wdata_i[15:0];
          OffsetRightAddressLow:        neighbours_q.right[31:0] <= wdata_i;
          OffsetRightAddressHigh:       neighbours_q.right[47:32] <= wdata_i[15:0];
          OffsetLeftAddressLow:         neighbours_q.left[31:0] <= wdata_i;
          OffsetLeftAddressHigh:        neighbours_q.left[47:32] <= wdata_i[15:0];
          OffsetRequestSourceLow:       request_q.span.source[31:0] <= wdata_i;
          OffsetRequestSourceHigh:      request_q.span.source[63:32] <= wdata_i;
          OffsetRequestDestinationLow:  request_q.span.destination[31:0] <= wdata_i;
          OffsetRequestDestinationHigh: request_q.span.destination[63:32] <= wdata_i;
          OffsetRequestCount:           request_q.span.count <= wdata_i;
          OffsetRequestPost: begin
            request_q.tag <= wdata_i[15:0];
            post_q        <= has_room;
            bresp_q       <= has_room ? Okay : SlaveError;
          end
          default: bresp_q <= SlaveError;
        endcase
      end
    end
  end

  assign enable_o          = enable_q;
  assign ring_o            = ring_q;
  assign identity_o        = identity_q;
  assign neighbours_o      = neighbours_q;
  assign request_timeout_o = request_timeout_q;
  assign link_timeout_o    = link_timeout_q;
  assign soft_reset_o      = soft_reset_q;
  assign post_o            = post_q;
  assign request_o         = request_q;

  // --- Counting ---
  logic [31:0] counter_q [Counters];

  for (genvar i = 0; i < Counters; i++) begin : gen_counter
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        counter_q[i] <= '0;
      end else begin
        counter_q[i] <= counter_q[i] + 32'(count_i[i]);
      end
    end
  end

  // --- Reading: the address is taken, then each kind's answer is found, then one of these ---
  logic        asked_q, found_q, rvalid_q, is_counter, is_counter_q;
  logic [11:0] raddr_q;
  logic [31:0] value, value_q, count, count_q, rdata_q;
  logic [9:0]  counter_index;

  localparam int unsigned CountIndexWidth = $clog2(Counters);

  assign arready_o          = !asked_q && !found_q && !rvalid_q;
  assign rvalid_o           = rvalid_q;
  assign rdata_o            = rdata_q;
  assign rresp_o            = Okay;
  assign completion_taken_o = asked_q && raddr_q == OffsetCompletion;
  assign counter_index      = 10'((raddr_q - FirstCounter) >> 2);
  assign is_counter         = raddr_q >= FirstCounter && counter_index < 10'(Counters);

  always_comb begin
    count = '0;
    for (int unsigned i = 0; i < Counters; i++) begin
      if (counter_index[CountIndexWidth-1:0] == CountIndexWidth'(i)) count = counter_q[i];
    end
  end

  always_comb begin
    value = '0;
    unique case (raddr_q)
      OffsetId:                     value = ResetId;
      OffsetVersion:                value = Version;
      OffsetShape:                  value = {11'd0, HasBfp, 4'(Mantissa), 8'(Block), 8'(Lanes)};
      OffsetControl:                value = {30'd0, ring_q.bfp, enable_q};
      OffsetStatus: begin
        value = {24'd0, link_idle_i, reason_i, resetting_i, busy_i, failed_i, ready_i};
      end
      OffsetRing:                   value = {18'd0, ring_q.size, 2'd0, ring_q.position};
      OffsetIdentity:               value = {8'd0, identity_q.epoch, identity_q.ring};
      OffsetRequestTimeout:         value = request_timeout_q;
      OffsetLinkTimeout:            value = link_timeout_q;
      OffsetOwnAddressLow:          value = identity_q.address[31:0];
      OffsetOwnAddressHigh:         value = {16'd0, identity_q.address[47:32]};
      OffsetRightAddressLow:        value = neighbours_q.right[31:0];
      OffsetRightAddressHigh:       value = {16'd0, neighbours_q.right[47:32]};
      OffsetLeftAddressLow:         value = neighbours_q.left[31:0];
      OffsetLeftAddressHigh:        value = {16'd0, neighbours_q.left[47:32]};
      OffsetRequestSourceLow:       value = request_q.span.source[31:0];
      OffsetRequestSourceHigh:      value = request_q.span.source[63:32];
      OffsetRequestDestinationLow:  value = request_q.span.destination[31:0];
      OffsetRequestDestinationHigh: value = request_q.span.destination[63:32];
      OffsetRequestCount:           value = request_q.span.count;
      OffsetRequestRoom:            value = 32'(room_i);
      OffsetCompletion: begin
        value = {completion_valid_i, 12'd0, completion_valid_i ? completion_i.status : StatusDone,
                 completion_valid_i ? completion_i.tag : 16'd0};
      end
      default: ;
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asked_q  <= 1'b0;
      found_q  <= 1'b0;
      rvalid_q <= 1'b0;
    end else begin
      asked_q  <= arvalid_i && arready_o;
      found_q  <= asked_q;
      rvalid_q <= found_q || (rvalid_q && !rready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    raddr_q      <= araddr_i;
    value_q      <= value;
    count_q      <= count;
    is_counter_q <= is_counter;
    if (found_q) rdata_q <= is_counter_q ? count_q : value_q;
  end

endmodule
