/* SPDX-License-Identifier: Apache-2.0 */
/* A job as a log of edits by turn (Schedule in server/job/schedule.h): two shards of one replica each,
   whose loops read in lockstep and seek at one turn; an operator who seeks, skips, resizes and
   swaps, and with -DPLAN plans a swap for an epoch; one saved state; a daemon that is killed and
   knows its log and the reserved turn. No turn may have two meanings. README.md has the map. */

#ifndef SHARDS
#define SHARDS 2 /* at first */
#endif
#ifndef TURNS
#define TURNS 4
#endif
#define EDITS 2
#define ITEMS 4 /* batches of one row */
#define CREDITS 2
#define NONE 15
/* At this turn every loop says set_epoch. */
#ifdef PLAN
#define SAY_TURN 2
#define SAY_EPOCH 0
#else
#define SAY_TURN 1
#define SAY_EPOCH 2
#endif

#define SEEK 0   /* to the start of epoch 1 */
#define SKIP 1   /* 1 step, of an epoch */
#define RESIZE 2 /* to as many shards */
#define SWAP 3   /* to a version; 0 and 1 are of one order, 2 is of another */
#define ORDER(version) ((version) == 2)

/* On disk. */
byte edits;
byte turn_of[EDITS], kind_of[EDITS], number_of[EDITS];
bool entry_known[EDITS]; /* where the shard begins that the resize brings */
byte entry_epoch[EDITS], entry_position[EDITS], entry_version[EDITS];
bool entry_said[EDITS];
byte branch, parted[EDITS + 2];
byte reserved;
bool planned;
byte planned_from;

/* The daemon's memory, of each rank. */
bool attached[2];
bool enters[2];   /* its shard is new, or is not there, and has been sent nothing */
byte sent[2];     /* turns that it was sent, at most */
byte own_turn[2]; /* its last own seek; NONE: the log alone counts */
byte own_epoch[2], own_position[2], own_version[2];
byte reached;     /* nobody was sent a turn beyond */

/* The ranks' processes. */
byte handed[2];
byte next[2];           /* batches of turns before are here, or were handed out */
short batch[2 * CREDITS];
byte at_epoch[2], at_position[2];
bool at_order[2];
byte at_branch[2];
bool said[2];

/* One saved state. */
bool saved;
byte saved_handed, saved_epoch, saved_position, saved_branch;
bool saved_order, saved_said;

/* The truth: what a turn was when it was first handed out, on the branch as it is; 0: not yet. */
short was[TURNS];
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef DAEMON_DEATHS
#define DAEMON_DEATHS 1
#endif
#ifndef STARTS
#define STARTS 0
#endif
#ifndef COMMANDS
#define COMMANDS EDITS
#endif
byte deaths = DEATHS, daemon_deaths = DAEMON_DEATHS, commands = COMMANDS, plans = 1;
byte starts = STARTS; /* of all ranks, or of one that died, from an earlier state */
#ifdef BUG_TELL_BEFORE_KEEPING
byte unkept = NONE; /* an edit that is not on disk */
#endif

/* What one step of the model computes; no state of it. First what a fold leads to. */
hidden byte f_epoch, f_position, f_shards, f_version, f_next;
hidden byte f_i, f_k, f_rank, f_at, f_count, f_last, f_ok;
hidden byte x_rank, x_turn, x_all; /* what C is called with */
hidden byte x_handed, x_epoch, x_position, x_order, x_said; /* a state that ranks start from */
hidden short f_one;

#define PACKED \
  (1 + ((((f_epoch * 8 + f_position) * 2 + f_shards - 1) * 4 + f_version) * 4 + f_next))
#define BRANCH 2048
#define BATCH(rank, turn) batch[(rank) * CREDITS + (turn) % CREDITS]

/* What is computed from the log alone is in C, so that a search takes seconds. */
c_code {
static void c_settle() {
  if (f_position > 0 && f_position + f_shards > ITEMS) f_epoch++, f_position = 0;
  if (f_position == 0) f_version = f_next;
}
static void advance() {
  f_position += f_shards;
  c_settle();
}
static void unpack(int value) {
  value -= 1;
  f_next = value % 4, value /= 4;
  f_version = value % 4, value /= 4;
  f_shards = value % 2 + 1, value /= 2;
  f_position = value % 8;
  f_epoch = value / 8;
}
static void apply(int edit) {
  switch (now.kind_of[edit]) {
    case SEEK: f_epoch = 1, f_position = 0; break;
    case SKIP: if (f_epoch == now.number_of[edit]) f_position += f_shards; break;
    case RESIZE: f_shards = now.number_of[edit]; break;
    case SWAP:
      f_next = now.number_of[edit];
      if (ORDER(f_version) == ORDER(f_next)) f_version = f_next;
  }
  c_settle();
}
static void apply_own(int rank, int turn) {
  if (now.own_turn[rank] != turn) return;
  f_epoch = now.own_epoch[rank], f_position = now.own_position[rank];
  f_version = now.own_version[rank];
  c_settle();
}
/* What `turn` is for a rank; without `all` its place behind, without the edits of that turn. */
static void c_fold(int rank, int turn, int all) {
  int at, i;
  f_epoch = f_position = f_version = f_next = 0, f_shards = SHARDS;
  for (at = 0; at <= turn; at++) {
#ifndef BUG_OWN_SEEK_COMES_LAST
    apply_own(rank, at);
#endif
    for (i = 0; i < now.edits; i++)
      if (now.turn_of[i] == at && (all || at < turn)) apply(i);
#ifdef BUG_OWN_SEEK_COMES_LAST
    apply_own(rank, at);
#endif
#ifdef BUG_PLANNED_IN_FOLD
    if (now.planned && at >= now.planned_from && f_epoch >= 1 && (all || at < turn))
      f_version = f_next = 1;
#endif
    if (at < turn) advance();
  }
}
static int c_shards_at(int turn) {
  int i, shards = SHARDS;
  for (i = 0; i < now.edits; i++)
    if (now.turn_of[i] <= turn && now.kind_of[i] == RESIZE) shards = now.number_of[i];
  return shards;
}
/* The last version before `turn`, if not `any`, of that order. */
static int c_version_of(int order, int any, int turn) {
  int i, version = 0;
  for (i = 0; i < now.edits; i++)
    if (now.turn_of[i] < turn && now.kind_of[i] == SWAP &&
        (any || ORDER(now.number_of[i]) == order))
      version = now.number_of[i];
  return version;
}
/* The first turn that no rank was sent, nor may have been. */
static int c_frontier() {
  int i, most = 0;
  for (i = 0; i < 2; i++) {
    int sent = now.sent[i];
#ifdef BUG_FRONTIER_IS_WHAT_WAS_HANDED
    sent = now.handed[i];
#endif
#ifdef BUG_ABSENT_IS_FORGOTTEN
    if (!now.attached[i]) continue;
#endif
    if (!now.enters[i] && sent > most) most = sent;
  }
  return most;
}
/* Whether a state of that branch and turn is one of the run. */
static int c_counts(int branch, int turn) {
  int i;
#ifndef BUG_BRANCH_IS_IGNORED
  for (i = branch + 1; i <= now.branch; i++)
    if (turn > now.parted[i]) return 0;
#endif
  return turn <= now.reached;
}
/* The resize that brought shard 1 last; NONE. */
static int c_entry() {
  int i, shards = SHARDS, found = NONE;
  for (i = 0; i < now.edits; i++) {
    if (now.kind_of[i] != RESIZE) continue;
    if (shards == 1 && now.number_of[i] == 2) found = i;
    shards = now.number_of[i];
  }
  return found;
}
}

inline fold(rank, turn, all) {
  x_rank = rank; x_turn = turn; x_all = all;
  c_code { c_fold(x_rank, x_turn, x_all); }
}
inline shards_at(turn) { x_turn = turn; c_code { f_count = c_shards_at(x_turn); } }
inline version_of(order, any, turn) {
  x_rank = order; x_all = any; x_turn = turn;
  c_code { f_last = c_version_of(x_rank, x_all, x_turn); }
}
inline frontier() { c_code { f_at = c_frontier(); } }
inline counts(of_branch, turn) {
  x_rank = of_branch; x_turn = turn;
  c_code { f_ok = c_counts(x_rank, x_turn); }
}

/* Shard 0 has come to the turn of a resize that brings shard 1. */
inline look_for_entry() {
  for (f_k : 0 .. EDITS - 1) {
    if
    :: f_k < edits && kind_of[f_k] == RESIZE && number_of[f_k] == 2 && !entry_known[f_k] &&
       attached[0] && handed[0] >= turn_of[f_k] &&
       (own_turn[0] == NONE || own_turn[0] <= turn_of[f_k]) ->
#ifdef BUG_ENTRY_IGNORES_OWN_SEEK_OF_ITS_TURN
      f_count = own_turn[0];
      own_turn[0] = (f_count == turn_of[f_k] -> NONE : f_count);
      fold(0, turn_of[f_k], false);
      own_turn[0] = f_count;
#else
      fold(0, turn_of[f_k], false);
#endif
      entry_known[f_k] = true;
      entry_epoch[f_k] = f_epoch; entry_position[f_k] = f_position; entry_version[f_k] = f_version;
      entry_said[f_k] = said[0] && SAY_TURN <= turn_of[f_k]
    :: else
    fi
  }
}

inline tell_place(rank) {
  at_epoch[rank] = f_epoch; at_position[rank] = f_position; at_order[rank] = ORDER(f_version)
}

inline no_own(rank) {
  own_turn[rank] = NONE; own_epoch[rank] = 0; own_position[rank] = 0; own_version[rank] = 0
}

/* The rank attaches with its cursor. */
inline attach(rank) {
  attached[rank] = true;
  enters[rank] = false;
  next[rank] = handed[rank]; sent[rank] = handed[rank];
  BATCH(rank, 0) = 0; BATCH(rank, 1) = 0;
  at_branch[rank] = branch;
#ifdef BUG_CURSOR_WITHOUT_ORDER
  version_of(false, true, handed[rank]);
#else
  version_of(at_order[rank], at_position[rank] == 0, handed[rank]);
#endif
  own_turn[rank] = handed[rank];
  own_epoch[rank] = at_epoch[rank]; own_position[rank] = at_position[rank];
  own_version[rank] = f_last;
  if
  :: rank == 0 -> look_for_entry()
  :: else
  fi
}

inline take_saved() {
  x_handed = saved_handed; x_epoch = saved_epoch; x_position = saved_position;
  x_order = saved_order; x_said = saved_said
}
inline start_from(rank) {
  handed[rank] = x_handed; said[rank] = x_said;
  at_epoch[rank] = x_epoch; at_position[rank] = x_position; at_order[rank] = x_order;
  attach(rank)
}

inline forget(rank) {
  attached[rank] = false; handed[rank] = 0; next[rank] = 0; sent[rank] = 0; said[rank] = false;
  at_epoch[rank] = 0; at_position[rank] = 0; at_order[rank] = false; at_branch[rank] = 0;
  BATCH(rank, 0) = 0; BATCH(rank, 1) = 0;
  no_own(rank)
}

inline move_edit(from, to) {
  turn_of[to] = turn_of[from]; kind_of[to] = kind_of[from]; number_of[to] = number_of[from];
  entry_known[to] = entry_known[from]; entry_epoch[to] = entry_epoch[from];
  entry_position[to] = entry_position[from]; entry_version[to] = entry_version[from];
  entry_said[to] = entry_said[from]
}
inline clear_entry(e) {
  entry_known[e] = false; entry_epoch[e] = 0; entry_position[e] = 0; entry_version[e] = 0;
  entry_said[e] = false
}
inline drop_edit(e) {
  for (f_i : e .. EDITS - 2) { move_edit(f_i + 1, f_i) };
  edits--;
  turn_of[edits] = 0; kind_of[edits] = 0; number_of[edits] = 0;
  clear_entry(edits)
}

inline clear_later(e) {
  if
  :: turn_of[e] > f_at -> clear_entry(e)
  :: else
  fi
}

#define SAME_KIND(a, b) ((a) == (b) || (a) < RESIZE && (b) < RESIZE)

/* Adds an edit of `kind` and `number` at the turn f_at: later ones of its kind go. */
inline add() {
  /* No rank was handed more. */
  assert((enters[0] || handed[0] <= f_at) && (enters[1] || handed[1] <= f_at));
  f_k = 0;
  do
  :: f_k < edits && turn_of[f_k] > f_at && SAME_KIND(kind_of[f_k], kind) -> drop_edit(f_k)
  :: f_k < edits && !(turn_of[f_k] > f_at && SAME_KIND(kind_of[f_k], kind)) ->
    clear_later(f_k); f_k++
  :: f_k >= edits -> break
  od;
  assert(edits < EDITS);
  shards_at(f_at);
  f_k = edits;
  do
  :: f_k > 0 && turn_of[f_k - 1] > f_at -> move_edit(f_k - 1, f_k); f_k--
  :: f_k == 0 || turn_of[f_k - 1] <= f_at -> break
  od;
  turn_of[f_k] = f_at; kind_of[f_k] = kind; number_of[f_k] = number;
  clear_entry(f_k);
  edits++;
#ifdef BUG_TELL_BEFORE_KEEPING
  unkept = f_k;
#endif
  if
  :: kind == SWAP -> planned = false; planned_from = 0
  :: kind == RESIZE && number == 2 && f_count == 1 -> forget(1); enters[1] = true
  :: kind == RESIZE && number == 1 && enters[1] -> forget(1)
  :: else
  fi;
#ifdef BUG_ENTRY_AT_COMMAND
  if
  :: kind == RESIZE && number == 2 && f_count == 1 ->
    fold(0, f_at, false);
    entry_known[f_k] = true;
    entry_epoch[f_k] = f_epoch; entry_position[f_k] = f_position; entry_version[f_k] = f_version;
    entry_said[f_k] = said[0] && SAY_TURN <= f_at
  :: else
  fi;
#endif
  if
  :: f_at < reached ->
    branch++; parted[branch] = f_at; reached = f_at;
    for (f_i : 0 .. TURNS - 1) {
      if
      :: f_i >= f_at -> was[f_i] = 0
      :: else
      fi
    }
  :: else
  fi;
  look_for_entry()
}

/* f_ok: all ranks are in one place at the turn f_at, as seeks, skips and resizes need it; f_count:
   its epoch. */
inline one_place() {
  f_ok = true;
  shards_at(f_at);
  f_epoch = NONE;
  f_k = NONE;
  for (f_rank : 0 .. 1) {
    if
    :: attached[f_rank] && !enters[f_rank] && f_rank < f_count ->
      fold(f_rank, f_at, true);
      f_ok = f_ok && (f_k == NONE || f_k == f_epoch * 8 + f_position);
      f_k = f_epoch * 8 + f_position
    :: else
    fi
  };
  f_ok = f_ok && f_k != NONE;
  f_count = f_k / 8
}

#define WORLD(turn) \
  (edits > 1 && kind_of[1] == RESIZE && turn_of[1] <= (turn) -> number_of[1] : \
   (edits > 0 && kind_of[0] == RESIZE && turn_of[0] <= (turn) -> number_of[0] : SHARDS))
/* Its shard is there, and not yet at the turn from which on it is not. */
#define READS(rank) (!enters[rank] && (rank) < WORLD(handed[rank]))
#define DONE(rank) (!READS(rank) || handed[rank] == TURNS)
/* In lockstep: the other one has come as far. */
#define MAY_GO(rank) (!READS(1 - rank) || handed[1 - rank] >= handed[rank])
#define HAS_TO_SAY(rank) (handed[rank] == SAY_TURN && !said[rank])

#ifdef BUG_NO_RESERVE
#define IS_RESERVED(turn) true
#else
#define IS_RESERVED(turn) (turn < reserved)
#endif

inline send(rank) {
  f_at = next[rank];
  fold(rank, f_at, true);
#ifdef PLAN
#ifndef BUG_PLANNED_IN_FOLD
  if
  :: planned && f_at >= planned_from && f_epoch >= 1 ->
    /* The swap has its turn now; it is on disk before the batch goes out. */
    frontier();
    f_at = (f_at > next[rank] -> f_at : next[rank]);
    kind = SWAP; number = 1;
    add();
    f_at = next[rank];
    fold(rank, f_at, true)
  :: else
  fi;
#endif
#endif
  BATCH(rank, f_at) = branch * BRANCH + PACKED; /* the branch is told in the stream */
  next[rank] = f_at + 1;
  sent[rank] = (sent[rank] > f_at + 1 -> sent[rank] : f_at + 1);
  reached = (reached > sent[rank] -> reached : sent[rank])
}

inline say(rank) {
  said[rank] = true;
  version_of(false, true, SAY_TURN);
  own_turn[rank] = SAY_TURN; own_epoch[rank] = SAY_EPOCH; own_position[rank] = 0;
  own_version[rank] = f_last;
#ifndef BUG_SENT_IS_NOT_TAKEN_BACK
  next[rank] = SAY_TURN;
  BATCH(rank, 0) = 0; BATCH(rank, 1) = 0;
#endif
  fold(rank, SAY_TURN, false);
  tell_place(rank)
}

inline take(rank) {
  f_at = handed[rank];
  f_one = BATCH(rank, f_at);
#ifndef BUG_BRANCH_IS_TOLD_AT_ATTACH
  at_branch[rank] = f_one / BRANCH;
#endif
  f_one = f_one % BRANCH;
  assert(f_one != 0 && (was[f_at] == 0 || was[f_at] == f_one));
  was[f_at] = f_one;
  BATCH(rank, f_at) = 0;
  c_code { unpack(f_one); advance(); };
  handed[rank] = f_at + 1;
#ifdef BUG_CURSOR_BEHIND_EDITS
  if
  :: attached[rank] -> fold(rank, f_at + 1, true)
  :: else
  fi;
#endif
  tell_place(rank);
  if
  :: rank == 0 -> look_for_entry()
  :: else
  fi
}

/* Shard 1 begins, if it is known where. */
inline enter() {
  c_code { f_last = c_entry(); };
  if
  :: f_last != NONE && entry_known[f_last] ->
    f_k = f_last;
    enters[1] = false; attached[1] = true;
    handed[1] = turn_of[f_k]; next[1] = handed[1]; sent[1] = handed[1];
    said[1] = entry_said[f_k];
    at_branch[1] = branch;
    own_turn[1] = handed[1]; own_epoch[1] = entry_epoch[f_k];
    own_position[1] = entry_position[f_k]; own_version[1] = entry_version[f_k];
    fold(1, handed[1], false);
    tell_place(1)
  :: else
  fi
}

inline start_all() {
  attached[0] = false; attached[1] = false;
  if
  :: WORLD(x_handed) == 1 -> forget(1); enters[1] = true
  :: else -> start_from(1)
  fi;
  start_from(0);
  frontier();
  for (f_k : 0 .. EDITS - 1) { clear_later(f_k) }
}

inline use_up_saved() {
  starts--;
  saved = false; saved_handed = 0; saved_epoch = 0; saved_position = 0; saved_branch = 0;
  saved_order = false; saved_said = false
}

proctype Rank(byte me) {
  byte kind, number;
end:
  do
  :: d_step { attached[me] && !enters[me] && next[me] < TURNS && me < WORLD(next[me]) &&
              next[me] < handed[me] + CREDITS && IS_RESERVED(next[me]) ->
      send(me);
      kind = 0; number = 0 }
  :: d_step { READS(me) && attached[me] && HAS_TO_SAY(me) && MAY_GO(me) -> say(me) }
  /* What is in its socket it takes also when the daemon is gone. */
  :: d_step { READS(me) && !HAS_TO_SAY(me) && next[me] > handed[me] && MAY_GO(me) -> take(me) }
  :: d_step { me == 1 && enters[1] &&
              (edits > 0 && entry_known[0] || edits > 1 && entry_known[1]) -> enter() }
  :: d_step { !saved && starts > 0 && READS(me) && handed[me] > 0 && attached[me] ->
      saved = true;
      saved_handed = handed[me]; saved_epoch = at_epoch[me]; saved_position = at_position[me];
      saved_order = at_order[me]; saved_branch = at_branch[me]; saved_said = said[me] }
  :: d_step { deaths > 0 && READS(me) && attached[me] ->
      deaths--;
      attached[me] = false; next[me] = handed[me];
      BATCH(me, 0) = 0; BATCH(me, 1) = 0;
      no_own(me) }
  :: d_step { !attached[me] && READS(me) && handed[me] < TURNS ->
      counts(at_branch[me], handed[me]);
      assert(f_ok);
      attach(me) }
  /* It alone from the saved state. */
  :: d_step { !attached[me] && READS(me) && saved && starts > 0 && me < WORLD(saved_handed) ->
      counts(saved_branch, saved_handed);
      if
      :: f_ok -> take_saved(); start_from(me)
      :: else
      fi;
      use_up_saved() }
  od
}

/* The daemon's death, its disk, a launcher that starts all ranks again, and the operator. */
proctype Daemon() {
  byte kind, number;
end:
  do
  :: d_step { reserved < TURNS && (next[0] == reserved || next[1] == reserved) ->
      reserved = (reserved + 2 < TURNS -> reserved + 2 : TURNS) }
  :: d_step { daemon_deaths > 0 && reached > 0 ->
      daemon_deaths--;
      for (f_rank : 0 .. 1) {
        attached[f_rank] = false;
        no_own(f_rank);
        sent[f_rank] = (enters[f_rank] -> 0 : reserved)
      };
#ifdef BUG_TELL_BEFORE_KEEPING
      if
      :: unkept != NONE -> drop_edit(unkept); unkept = NONE
      :: else
      fi;
#endif
      reached = reserved }
#ifdef BUG_TELL_BEFORE_KEEPING
  :: d_step { unkept != NONE -> unkept = NONE }
#endif
  :: d_step { saved && starts > 0 ->
      counts(saved_branch, saved_handed);
      if
      :: f_ok -> take_saved(); start_all()
      :: else
      fi;
      use_up_saved() }
  /* From the very beginning. */
  :: d_step { starts > 0 && reached > 0 ->
      x_handed = 0; x_epoch = 0; x_position = 0; x_order = 0; x_said = 0;
      start_all();
      starts-- }
  :: atomic { commands > 0 && edits + planned < EDITS && !(DONE(0) && DONE(1)) ->
      commands--;
      if
      :: kind = SEEK
      :: kind = SKIP
      :: kind = RESIZE; number = 1
      :: kind = RESIZE; number = 2
      :: kind = SWAP; number = 1
      :: kind = SWAP; number = 2
      fi;
      d_step { /* no search goes back to its midst, so what is hidden need not be restored */
      frontier();
      f_ok = true;
      if
      :: kind != SWAP -> one_place(); number = (kind == SKIP -> f_count : number)
      :: else
      fi;
      if
      :: f_ok && f_at < TURNS -> add()
      :: else
      fi;
      kind = 0; number = 0 } }
#ifdef PLAN
  :: d_step { plans > 0 && edits < EDITS ->
      plans--;
      frontier();
      planned = true; planned_from = f_at }
#endif
  od
}

init {
  atomic {
    own_turn[0] = NONE; own_turn[1] = NONE;
    attached[0] = true;
    attached[1] = (SHARDS == 2);
    enters[1] = (SHARDS == 1);
    run Rank(0);
    run Rank(1);
    run Daemon()
  };
  timeout -> assert(DONE(0) && DONE(1)) /* nobody waits for ever */
}
