// The first half of the Frame Parsing Stage of one port (allreduce-switch, IV-C, Fig. 11): tells what may be folded from
// what is forwarded, and lets each have its way.
//
// DEC_FSM (frame_decoder) reads frames as they go into a short FIFO and decides about each; the frame behind the
// decision is then cut through, or goes into the Proc. FIFO. PROC_FSM asks the Aggregation Frame Handler about every
// frame that is whole there, and forwards, hands over or discards it. Frames that it forwards leave before later frames
// do: a connection's packets stay in order. The handler may take a frame early, while its last beats are still to come.
// It is asked all the same when the frame is whole.
module frame_analyzer
  import switch_pkg::*;
#(
  parameter int unsigned Ports     = 8,
  parameter int unsigned Port      = 0,
  parameter int unsigned Jobs      = 1,
  parameter int unsigned ProcBeats = 512,  // of the Proc. FIFO: one frame that is judged and one that is copied
  parameter int unsigned NearBeats = 20    // so far from its end a frame may be taken early
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,

  // From the Port Analyzer; the destination stands through all beats.
  input  logic                   s_valid_i,
  output logic                   s_ready_o,
  input  beat_t                  s_beat_i,
  input  mark_e                  s_mark_i,
  input  logic                   s_is_known_i,
  input  logic [Ports-1:0]       s_ports_i,
  input  logic                   is_crowded_i,  // no more frame can wait there

  // To the queues, which take a frame or drop it.
  output logic                   m_valid_o,
  output logic                   m_first_o,
  output beat_t                  m_beat_o,
  output logic [Ports-1:0]       m_ports_o,

  // To the Aggregation Frame Handler: a question, then the frame.
  input  connection_t [Jobs-1:0] connections_i,
  output logic                   info_valid_o,
  output frame_info_t            info_o,
  output logic                   is_near_o,      // the end of the frame that `info_o` describes: it may be taken early
  output logic                   is_last_o,      // three beats before it is whole, or less
  input  logic                   early_i,        // it is taken
  input  logic                   route_valid_i,
  input  route_e                 route_i,
  output logic                   fold_valid_o,
  input  logic                   fold_ready_i,
  output beat_t                  fold_beat_o,
  input  logic                   abort_i,        // the handler is reset

  output parsed_t              parsed_o
);

  typedef struct packed {
    fate_t            fate;
    logic             is_known;
    logic [Ports-1:0] ports;
  } decision_t;

  // --- DEC_FSM ---
  logic        take, decoder_ready, header_ready, head_valid, head_pop, decides, decision_ready, decision_valid;
  logic        first_waits, first_comes, first_comes_q, first_is_judged_q, first_gives_way_q, unused_ready;
  logic        passes, moves;  // a beat that does not wait in the FIFO goes on; a beat goes on
  logic [3:0]  firsts_q;  // Write Firsts that are not judged
  beat_t       head, beat;
  fate_t       fate;
  decision_t   decision;

  assign s_ready_o   = decoder_ready && header_ready && decision_ready;
  assign take        = s_valid_i && s_ready_o;
  assign first_waits = firsts_q != '0;

  frame_decoder #(.Jobs(Jobs)) u_decoder (
    .clk_i,
    .rst_ni,
    .ready_o      (decoder_ready),
    .take_i       (take),
    .beat_i       (s_beat_i),
    .mark_i       (s_mark_i),
    .ends_here_i  (s_ports_i == '0),
    .first_waits_i(first_waits),
    .is_crowded_i,
    .connections_i,
    .decides_o    (decides),
    .fate_o       (fate),
    .first_comes_o(first_comes)
  );

  stream_queue #(
    .Width($bits(beat_t)),
    .Depth(32)
  ) u_head (
    .clk_i,
    .rst_ni,
    .s_valid_i(take && !passes),
    .s_ready_o(header_ready),
    .s_data_i (s_beat_i),
    .m_valid_o(head_valid),
    .m_ready_i(head_pop),
    .m_data_o (head)
  );

  stream_queue #(
    .Width($bits(decision_t)),
    .Depth(32)
  ) u_decisions (
    .clk_i,
    .rst_ni,
    .s_valid_i(decides),
    .s_ready_o(decision_ready),
    .s_data_i ({fate, s_is_known_i, s_ports_i}),
    .m_valid_o(decision_valid),
    .m_ready_i(moves && beat.last),
    .m_data_o (decision)
  );

  // --- Behind the decision: on, or into the Proc. FIFO ---
  typedef enum logic [1:0] {ProcJudge, ProcForward, ProcFold, ProcDrop} proc_e;

  localparam int unsigned LevelWidth = $clog2(ProcBeats + 2);

  proc_e                 proc_q;
  logic                  begins_q, gives_way_q, gives_way, is_cut, is_cutting, goes, push, judged;
  logic                  is_early_q, is_void_q, is_near;
  logic                  is_taken_q, is_whole_q, proc_valid, proc_ready, proc_first_q, is_known_q, sent_is_known_q;
  logic [Ports-1:0]      ports_q, sent_ports_q;
  logic [LevelWidth-1:0] unused_level;
  beat_t                 proc_beat;

  assign is_cut     = !decision.fate.is_candidate;
  assign is_cutting = decision_valid && is_cut && !begins_q;
  // One that may be folded waits until the one before is judged, or gives way to what cannot wait any longer behind it;
  // others wait until a stored one has gone on.
  assign gives_way  = begins_q ? is_taken_q && is_crowded_i : gives_way_q;
  assign goes       = decision_valid && !(begins_q && (is_cut ? proc_q == ProcForward : is_taken_q && !is_crowded_i));
  // Only what is cut through may pass: what may be folded has a longer path ahead.
  assign head_pop   = head_valid && goes;
  assign passes     = !head_valid && take && goes && is_cut;
  assign moves      = head_pop || passes;
  assign beat       = head_valid ? head : s_beat_i;
  assign push       = head_pop && !is_cut && !gives_way;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      begins_q          <= 1'b1;
      gives_way_q       <= 1'b0;
      is_taken_q        <= 1'b0;
      is_whole_q        <= 1'b0;
      is_early_q        <= 1'b0;
      is_void_q         <= 1'b0;
      first_comes_q     <= 1'b0;
      first_is_judged_q <= 1'b0;
      first_gives_way_q <= 1'b0;
      firsts_q          <= '0;
    end else begin
      if (moves) begin
        begins_q    <= beat.last;
        gives_way_q <= gives_way;
      end
      is_taken_q <= push || (is_taken_q && !judged);
      is_whole_q <= (push && head.last) || (is_whole_q && !judged);
      // A frame that was taken early is void when the handler is reset: the handler is not asked about it.
      is_early_q <= !abort_i && (early_i || (is_early_q && !judged));
      is_void_q  <= (abort_i && (early_i || is_early_q)) || (is_void_q && !judged);
      // Counted a cycle late: another frame is decided about after some beats, and this one is judged later still.
      first_comes_q     <= first_comes;
      first_is_judged_q <= route_valid_i && info_o.is_first;
      first_gives_way_q <= head_pop && begins_q && !is_cut && gives_way && decision.fate.is_first;
      firsts_q          <= firsts_q + 4'(first_comes_q) - 4'(first_is_judged_q) - 4'(first_gives_way_q);
    end
  end

  decoder_information #(.NearBeats(NearBeats)) u_information (
    .clk_i,
    .rst_ni,
    .valid_i  (push),
    .beat_i   (head),
    .is_v2_i  (decision.fate.is_v2),
    .has_tag_i(decision.fate.has_tag),
    .info_o,
    .is_near_o(is_near),
    .is_last_o
  );

  stream_fifo #(
    .Width($bits(beat_t)),
    .Depth(ProcBeats)
  ) u_proc (
    .clk_i,
    .rst_ni,
    .s_valid_i(push),
    .s_ready_o(unused_ready),  // there is room for two frames
    .s_data_i (head),
    .m_valid_o(proc_valid),
    .m_ready_i(proc_ready),
    .m_data_o (proc_beat),
    .level_o  (unused_level)
  );

  // --- PROC_FSM ---
  assign info_valid_o = is_whole_q && !is_void_q && (proc_q == ProcJudge || is_early_q);
  assign is_near_o    = is_near && is_taken_q && proc_q == ProcJudge && !is_early_q && !is_void_q;
  assign judged       = route_valid_i || (is_void_q && is_whole_q);
  assign fold_valid_o = proc_valid && proc_q == ProcFold;
  assign fold_beat_o  = proc_beat;

  always_comb begin
    unique case (proc_q)
      ProcForward: proc_ready = !is_cutting;
      ProcFold:    proc_ready = fold_ready_i;
      ProcDrop:    proc_ready = 1'b1;
      default:     proc_ready = 1'b0;
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      proc_q       <= ProcJudge;
      proc_first_q <= 1'b0;
    end else if (proc_q == ProcJudge) begin
      proc_first_q <= 1'b1;
      if (early_i) begin
        proc_q <= abort_i ? ProcDrop : ProcFold;
      end else if (route_valid_i && !is_early_q) begin
        unique case (route_i)
          RouteForward: proc_q <= ProcForward;
          RouteFold:    proc_q <= ProcFold;
          default:      proc_q <= ProcDrop;
        endcase
      end
    end else begin
      if (proc_q == ProcFold && (abort_i || (is_early_q && route_valid_i && route_i != RouteFold))) proc_q <= ProcDrop;
      if (proc_valid && proc_ready) begin
        proc_first_q <= 1'b0;
        if (proc_beat.last) proc_q <= ProcJudge;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (push && begins_q) begin
      is_known_q <= decision.is_known;
      ports_q    <= decision.ports;
    end
    if (proc_q == ProcJudge) begin
      sent_is_known_q <= is_known_q;
      sent_ports_q    <= ports_q;
    end
  end

  // --- To the queues ---
  logic             is_stored, is_known, ends_here;
  logic [Ports-1:0] ports, others;

  assign is_stored = proc_q == ProcForward && !is_cutting;
  assign is_known  = is_stored ? sent_is_known_q : decision.is_known;
  assign ports     = is_stored ? sent_ports_q : decision.ports;
  assign others    = ports & ~(Ports'(1) << Port);
  assign m_valid_o = is_stored ? proc_valid : moves && is_cut;
  assign m_first_o = is_stored ? proc_first_q : begins_q;
  assign m_beat_o  = is_stored ? proc_beat : beat;
  assign ends_here = decision.fate.is_runt || decision.fate.is_overtagged || decision.fate.gives_way;
  assign m_ports_o = !is_stored && ends_here ? '0 : others;

  always_comb begin
    parsed_o            = '0;
    parsed_o.gave_way   = moves && begins_q && (is_cut ? decision.fate.gives_way : gives_way);
    parsed_o.forwarded  = m_valid_o && m_first_o && is_known && m_ports_o != '0;
    parsed_o.flooded    = m_valid_o && m_first_o && !is_known && m_ports_o != '0;
    parsed_o.filtered   = m_valid_o && m_first_o && is_known && others == '0;
    parsed_o.runt       = moves && begins_q && decision.fate.is_runt;
    parsed_o.overtagged = moves && begins_q && decision.fate.is_overtagged;
  end

endmodule
