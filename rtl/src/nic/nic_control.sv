// The life of requests: queued, started, ended, reported; and what happens when one cannot end.
//
// While a request is on its way something must move within the time set. If nothing does, or the left neighbour sends a
// chunk that no request waits for, the device has failed. Every request that was started ends with that reason, every
// other is refused, the memory ports are brought to rest, and only a soft reset makes it ready again.
module nic_control
  import nic_pkg::*;
#(
  parameter int unsigned Requests = 16,  // from post to report, a power of two
  localparam int unsigned RoomWidth = $clog2(Requests + 1)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

  input  logic                 enable_i,
  input  logic                 ring_ok_i,         // the settings make sense
  input  logic                 soft_reset_i,      // for a cycle
  input  logic [31:0]          timeout_i,         // in 1024 cycles

  input  logic                 post_i,            // only while there is room
  input  request_t             request_i,
  output logic [RoomWidth-1:0] room_o,
  output logic                 completion_valid_o,
  input  logic                 completion_taken_i,
  output completion_t          completion_o,

  output logic                 start_valid_o,     // to the plan
  input  logic                 start_ready_i,
  output span_t                start_o,
  input  logic                 ended_i,           // the oldest that was started
  input  logic                 moves_i,
  input  logic                 mismatch_i,
  input  logic                 idle_i,            // the memory ports rest

  output logic                 drain_o,
  output logic                 datapath_rst_no,
  output logic                 busy_o,
  output logic                 ready_o,
  output logic                 failed_o,
  output logic                 resetting_o,
  output status_e              reason_o
);

  typedef enum logic [1:0] {StateReady, StateFailed, StateResetting, StateClear} state_e;

  state_e                state_q;
  status_e               reason_q, status;
  logic [RoomWidth-1:0]  room_q;
  logic                  request_valid, request_taken, tag_valid, tag_taken, tag_space, starts, timed_out, tick;
  logic                  report;
  logic [15:0]           tag, report_tag;
  logic [9:0]            prescaler_q;
  logic [31:0]           quiet_q;  // ticks since something moved
  logic                  takes, rst_nq;
  logic                  unused_request_space, unused_completion_space;  // there is room, or nothing is posted
  request_t              request;

  assign takes = state_q == StateReady && enable_i && ring_ok_i;

  stream_queue #(
    .Width($bits(request_t)),
    .Depth(Requests)
  ) u_requests (
    .clk_i,
    .rst_ni,
    .s_valid_i(post_i),
    .s_ready_o(unused_request_space),
    .s_data_i (request_i),
    .m_valid_o(request_valid),
    .m_ready_i(request_taken),
    .m_data_o (request)
  );

  stream_queue #(
    .Width(16),
    .Depth(Requests)
  ) u_tags (
    .clk_i,
    .rst_ni,
    .s_valid_i(starts),
    .s_ready_o(tag_space),
    .s_data_i (request.tag),
    .m_valid_o(tag_valid),
    .m_ready_i(tag_taken),
    .m_data_o (tag)
  );

  // Started requests end in their order; others are reported only when none of those is left.
  assign start_valid_o = request_valid && takes && tag_space;
  assign start_o       = request.span;
  assign starts        = start_valid_o && start_ready_i;
  assign tag_taken     = tag_valid && (state_q == StateReady ? ended_i : 1'b1);
  assign request_taken = starts || (request_valid && !takes && !tag_valid);
  assign report        = tag_taken || (request_taken && !starts);
  assign report_tag    = tag_taken ? tag : request.tag;

  always_comb begin
    if (state_q == StateResetting || state_q == StateClear) status = StatusReset;
    else if (!tag_taken) status = StatusRefused;
    else if (state_q == StateFailed) status = reason_q;
    else status = StatusDone;
  end

  stream_queue #(
    .Width($bits(completion_t)),
    .Depth(Requests)
  ) u_completions (
    .clk_i,
    .rst_ni,
    .s_valid_i(report),
    .s_ready_o(unused_completion_space),
    .s_data_i ({status, report_tag}),
    .m_valid_o(completion_valid_o),
    .m_ready_i(completion_taken_i),
    .m_data_o (completion_o)
  );

  // --- The watch ---
  assign tick      = &prescaler_q;
  assign timed_out = busy_o && tick && quiet_q >= timeout_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      prescaler_q <= '0;
      quiet_q     <= '0;
    end else begin
      prescaler_q <= prescaler_q + 1'b1;
      if (moves_i || !busy_o) begin
        quiet_q <= '0;
      end else if (tick) begin
        quiet_q <= quiet_q + 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q  <= StateReady;
      reason_q <= StatusDone;
      room_q   <= RoomWidth'(Requests);
      rst_nq   <= 1'b0;
    end else begin
      rst_nq <= state_q != StateClear;
      room_q <= room_q - RoomWidth'(post_i) + RoomWidth'(completion_taken_i && completion_valid_o);
      unique case (state_q)
        StateReady: begin
          if (mismatch_i || timed_out) begin
            state_q  <= StateFailed;
            reason_q <= mismatch_i ? StatusMismatch : StatusTimeout;
          end
        end
        StateResetting: if (!tag_valid && !request_valid && idle_i) state_q <= StateClear;
        StateClear: begin
          state_q  <= StateReady;
          reason_q <= StatusDone;
        end
        default: ;
      endcase
      if (soft_reset_i) state_q <= StateResetting;
    end
  end

  assign drain_o         = state_q != StateReady;
  assign datapath_rst_no = rst_nq;
  assign busy_o          = tag_valid;
  assign ready_o         = state_q == StateReady;
  assign failed_o        = state_q == StateFailed;
  assign resetting_o     = state_q == StateResetting || state_q == StateClear;
  assign reason_o        = reason_q;
  assign room_o          = room_q;

endmodule
