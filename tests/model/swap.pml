/* SPDX-License-Identifier: Apache-2.0 */
/* A hot swap of a job with two shards (Swaps in server/session/swaps.h): the old version's stream
   ends at a step, and the new version's stream begins at that step in another arena, on every shard.
   The daemon is killed at any step and reads the point from its store; a rank is killed at any step
   and goes on at its cursor. README.md has the map. */

#define SHARDS 2
#define STEPS 4
#define CREDITS 2
#define NEVER 255
#define NOW 254

/* What the daemon holds in memory; lost when it dies. Of a shard's feed: */
bool serving;
bool attached[SHARDS];
byte to_make[SHARDS];        /* made and sent are one step here: stream.pml has them apart */
byte point[SHARDS];          /* from which step on it uses the new version */
bool held[SHARDS];           /* nothing further is begun */
bool arena_open[SHARDS * 2]; /* of a version */
byte leased[SHARDS * 2];     /* batches of a version that are out */
/* Of the job, which outlives its feeds: */
bool known[SHARDS];          /* the shard has attached since the daemon's start */
byte frontier[SHARDS];       /* the first step that it has never begun */
byte stage;                  /* of an apply; 0: none is under way */
byte target, at;

/* What is on disk. */
byte kept_point = NEVER;

/* Ranks. */
byte cursor[SHARDS];
bool connected[SHARDS];
chan to_rank[SHARDS] = [CREDITS] of { byte, byte }; /* step, version */
chan releases[SHARDS] = [CREDITS] of { byte };      /* version */
byte in_hand[SHARDS * 2];                           /* batches of a version that the caller has */

/* The truth. */
byte made_by[STEPS];         /* the version of a step when it was first handed out; 0: not yet */
byte told = NEVER;           /* the point that apply has returned */
byte daemon_deaths = 2, rank_deaths = 1, applies = 1;

#define OUT(k) (leased[(k) * 2] + leased[(k) * 2 + 1])
#define IN_HAND(k) (in_hand[(k) * 2] + in_hand[(k) * 2 + 1])

#ifdef BUG_APPLY_BEFORE_ALL_ARE_KNOWN
#define MAY_APPLY true
#else
#define MAY_APPLY (known[0] && known[1])
#endif

/* An attach amid an apply waits until that is on disk, or refused, and told. */
#ifdef BUG_ATTACH_DOES_NOT_WAIT
#define MAY_ATTACH true
#else
#define MAY_ATTACH (stage == 0)
#endif

#ifdef BUG_DROP_OLD_ARENA
#define OLD_ARENA_IS_BACK(k) true
#else
#define OLD_ARENA_IS_BACK(k) (leased[(k) * 2] == 0)
#endif

inline forget_connection(k) {
  do
  :: nempty(to_rank[k]) -> to_rank[k]?_, _
  :: empty(to_rank[k]) -> break
  od;
  do
  :: nempty(releases[k]) -> releases[k]?_
  :: empty(releases[k]) -> break
  od;
  connected[k] = false;
  in_hand[k * 2] = 0;
  in_hand[k * 2 + 1] = 0
}

/* The feed has ended: its process has exited, or attaches anew. */
inline clear_feed(k) {
  attached[k] = false;
  to_make[k] = 0;
  point[k] = NEVER;
  held[k] = false;
  leased[k * 2] = 0;
  leased[k * 2 + 1] = 0;
  arena_open[k * 2] = false;
  arena_open[k * 2 + 1] = false
}

proctype Feed(byte k) {
  byte v;
  do
  :: atomic { serving && attached[k] && !held[k] && to_make[k] < STEPS && OUT(k) < CREDITS &&
              nfull(to_rank[k]) ->
      v = (to_make[k] >= point[k] -> 2 : 1);
      arena_open[k * 2 + v - 1] = true;
      leased[k * 2 + v - 1]++;
      to_rank[k]!to_make[k], v;
      to_make[k]++;
      if
      :: frontier[k] < to_make[k] -> frontier[k] = to_make[k]
      :: else
      fi;
      v = 0 }
  :: atomic { serving && attached[k] && nempty(releases[k]) ->
      releases[k]?v;
      assert(leased[k * 2 + v - 1] > 0 && arena_open[k * 2 + v - 1]);
      leased[k * 2 + v - 1]--;
      v = 0 }
  /* ArenaRetire: nothing more comes from the old arena; it goes when nothing of it is out. */
  :: atomic { serving && attached[k] && arena_open[k * 2] && to_make[k] >= point[k] &&
              OLD_ARENA_IS_BACK(k) ->
      arena_open[k * 2] = false;
      /* Its memory may be another stream's from here on. */
      assert(in_hand[k * 2] == 0) }
  :: atomic { cursor[k] == STEPS && !connected[k] -> break }
  od
}

proctype Rank(byte k) {
  byte step, v;
  do
  :: atomic { serving && !connected[k] && cursor[k] < STEPS && MAY_ATTACH ->
      clear_feed(k);
      connected[k] = true;
      attached[k] = true;
      to_make[k] = cursor[k];
      known[k] = true;
      if
      :: frontier[k] < cursor[k] -> frontier[k] = cursor[k]
      :: else
      fi;
#ifndef BUG_FORGET_POINT
      point[k] = kept_point
#endif
      }
  :: atomic { connected[k] && nempty(to_rank[k]) ->
      to_rank[k]?step, v;
      assert(step == cursor[k]);
      cursor[k] = step + 1;
      in_hand[k * 2 + v - 1]++;
      assert(IN_HAND(k) <= CREDITS);
      /* On every shard, and every time that it is made: the same version. */
      assert(made_by[step] == 0 || made_by[step] == v);
      made_by[step] = v;
      /* And as apply has said. */
      assert(told == NEVER || v == (step >= told -> 2 : 1));
      step = 0; v = 0 }
  :: atomic { connected[k] && IN_HAND(k) > 0 ->
      if
      :: in_hand[k * 2] > 0 -> v = 1
      :: in_hand[k * 2 + 1] > 0 -> v = 2
      fi;
      in_hand[k * 2 + v - 1]--;
      if
      :: serving && attached[k] -> assert(nfull(releases[k])); releases[k]!v
      :: else /* a lease of a daemon that is dead */
      fi;
      v = 0 }
  :: atomic { connected[k] && !attached[k] && empty(to_rank[k]) -> forget_connection(k) }
  :: atomic { rank_deaths > 0 && connected[k] ->
      rank_deaths--;
      forget_connection(k);
      clear_feed(k) }
  :: atomic { connected[k] && cursor[k] == STEPS && IN_HAND(k) == 0 && empty(releases[k]) ->
      assert(OUT(k) == 0); /* nothing of it is lost */
      forget_connection(k);
      clear_feed(k) }
  :: atomic { cursor[k] == STEPS && !connected[k] -> break }
  od
}

inline let_go(k) {
  held[k] = false
}

inline tell(k) {
  point[k] = (attached[k] -> at : NEVER);
  let_go(k)
}

/* One apply, --at now or at a step, in the steps between which the daemon may die. */
proctype Daemon() {
  do
  :: atomic { serving && stage == 0 && applies > 0 && MAY_APPLY ->
      applies--;
      stage = 1;
      if
      :: target = NOW
      :: target = 2
      fi }
#ifdef BUG_NO_HOLD
  :: atomic { stage == 1 -> stage = 3 }
#else
  :: atomic { stage == 1 -> held[0] = true; stage = 2 }
  :: atomic { stage == 2 -> held[1] = true; stage = 3 }
#endif
  :: atomic { stage == 3 ->
      at = (frontier[0] > frontier[1] -> frontier[0] : frontier[1]);
      if
      :: target == NOW -> stage = 4
      :: target != NOW && target >= at -> at = target; stage = 4
      :: target != NOW && target < at -> stage = 8 /* passed: refused */
      fi }
#ifdef BUG_TELL_BEFORE_KEEPING
  :: atomic { stage == 4 -> tell(0); stage = 5 }
  :: atomic { stage == 5 -> tell(1); stage = 6 }
  :: atomic { stage == 6 -> kept_point = at; stage = 7 }
#else
  :: atomic { stage == 4 -> kept_point = at; stage = 5 }
  :: atomic { stage == 5 -> tell(0); stage = 6 }
  :: atomic { stage == 6 -> tell(1); stage = 7 }
#endif
  :: atomic { stage == 7 -> told = at; let_go(0); let_go(1); at = 0; target = 0; stage = 0 }
  :: atomic { stage == 8 -> let_go(0); let_go(1); at = 0; target = 0; stage = 0 }
  :: atomic { serving && daemon_deaths > 0 ->
      daemon_deaths--;
      serving = false;
      clear_feed(0);
      clear_feed(1);
      known[0] = false; known[1] = false;
      frontier[0] = 0; frontier[1] = 0;
      stage = 0; at = 0; target = 0 }
  :: atomic { !serving -> serving = true }
  :: atomic { cursor[0] == STEPS && cursor[1] == STEPS && !connected[0] && !connected[1] &&
              stage == 0 ->
      break }
  od;
  assert(!arena_open[0] && !arena_open[1] && !arena_open[2] && !arena_open[3])
}

init {
  byte k;
  atomic {
    for (k : 0 .. SHARDS - 1) {
      point[k] = NEVER;
      run Feed(k);
      run Rank(k)
    }
    run Daemon()
  }
}
