PRAGMA application_id = 1397769292;
PRAGMA user_version = 6;
CREATE TABLE drain (since_unix_ms INTEGER NOT NULL, uid INTEGER NOT NULL);
INSERT INTO drain VALUES (1700000000003,1000);
CREATE TABLE ended (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL,
    ended_unix_ms INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline));
INSERT INTO ended VALUES (1000,'run','1000/train',1700000000001,'{"at":[3,7],"batch_size":0,"cache_hits":0,"cpu_s":0.0,"how":"failed: it''s over","items":0,"ledger_at":[0,0],"ledger_kept_unix_ms":0,"ledger_position":0,"max_epochs":0,"num_shards":0,"replace_budget":0,"replaced":0,"replicas":1,"rows":0,"saved_cpu_s":0.0,"seed":0,"shared_rows":0,"stages":[{"busy_s":0.0,"concurrency":0,"failures":0,"jpeg":{"by_coefficients":4,"by_libjpeg":3,"from_begin":2,"indexed":1,"recoded":5},"p50_us":0,"p99_us":0,"stage":"fetch","tasks":0,"wait_s":0.0}],"steps_per_epoch":0,"unix_ms":1700000000001,"version":0}');
CREATE TABLE failures (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, number INTEGER NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline, number));
INSERT INTO failures VALUES (1000,'run','1000/train',1,'{"code":"DATA_LOSS","ended_stream":false,"epoch":1,"item":9,"message":"truncated","position":2,"replaced_by":4,"unix_ms":1700000000002,"uri":"a.jpg"}');
CREATE TABLE files (path TEXT PRIMARY KEY, digest TEXT NOT NULL);
INSERT INTO files VALUES ('/etc/spdld/train.yaml','f1');
CREATE TABLE jobs (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, declared INTEGER NOT NULL,
    kept_unix_ms INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline));
INSERT INTO jobs VALUES (1000,'run','1000/train',1,1700000000000,'{"batch_size":32,"done":[[0,1]],"ended":false,"first_limits":{"weight":1.5},"first_vars":{"size":"224"},"incarnation":3,"limits":{"bytes":1048576,"cpus":3,"fetching":64,"prefetch":8,"processing":2,"weight":2.5},"manual":true,"max_epochs":90,"members":[{"at":[4,10],"is":"away","next":[4,12],"order":"A","position":960,"released":26,"replica":1,"sent":28,"shard":2}],"open_epochs":4,"phases":{"0":{"batch_size":48,"overrides":["size"],"owner":1000,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"request":{"bucket_run":128,"dataset":"files-1","env":{"HOME":"/root"},"file":"/etc/spdld/train.yaml","from_loader":true,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"vars":{"size":"224"},"yaml":"pipeline: train\n"},"version":7},"2":{"batch_size":48,"overrides":["size"],"owner":1000,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"request":{"bucket_run":128,"dataset":"files-1","env":{"HOME":"/root"},"file":"/etc/spdld/train.yaml","from_loader":true,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"vars":{"size":"224"},"yaml":"pipeline: train\n"},"version":8},"3":{"batch_size":48,"overrides":["size"],"owner":1000,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"request":{"bucket_run":128,"dataset":"files-1","env":{"HOME":"/root"},"file":"/etc/spdld/train.yaml","from_loader":true,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"vars":{"size":"224"},"yaml":"pipeline: train\n"},"version":9}},"reached":290,"replicas":4,"reserved":284,"schedule":{"base":{"at":[1,2],"next_version":3,"position":192,"shards":2,"version":0},"base_turn":12,"earlier":[0,3],"edits":[{"seek":[4,2],"turn":20},{"skip":{"epoch":4,"steps":3},"turn":20},{"entry":{"position":864,"skip":1,"to":[4,9],"turn":25,"version":0},"shards":3,"turn":25},{"turn":30,"version":2}],"oldest":13,"partings":[{"branch":1,"turn":14},{"branch":2,"turn":22}],"planned":{"from":31,"place":[6,5],"version":3},"run":1311768467463790320,"versions":{"0":{"batch":48,"items":1000,"order":"A","tail":"drop"},"2":{"batch":32,"items":1000,"order":"A","tail":"keep"},"3":{"batch":48,"items":600,"order":"B","tail":"pad"}},"versions_made":4},"seed":18446744073709551615,"start":[2,17],"vars":{"size":"192"}}');
CREATE TABLE pipelines (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, owner INTEGER NOT NULL, request TEXT NOT NULL);
INSERT INTO pipelines VALUES ('1000/train',2,1000,'{"bucket_run":128,"dataset":"files-1","env":{"HOME":"/root"},"file":"/etc/spdld/train.yaml","from_loader":true,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"vars":{"size":"224"},"yaml":"pipeline: train\n"}');
CREATE TABLE positions (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, epoch INTEGER NOT NULL,
    step INTEGER NOT NULL, position INTEGER NOT NULL, order_text TEXT NOT NULL,
    run INTEGER NOT NULL, branch INTEGER NOT NULL, turn INTEGER NOT NULL,
    kept_unix_ms INTEGER NOT NULL, PRIMARY KEY (uid, job, pipeline)) WITHOUT ROWID;
INSERT INTO positions VALUES (1000,'run','1000/train',3,7,896,'order',1311768467463790320,2,26,1700000000000);
CREATE TABLE replaced (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, item INTEGER NOT NULL,
    PRIMARY KEY (uid, job, pipeline, item)) WITHOUT ROWID;
INSERT INTO replaced VALUES (1000,'run','1000/train',9);
CREATE TABLE revisions (
    name TEXT NOT NULL, version INTEGER NOT NULL, applied_unix_ms INTEGER NOT NULL,
    applied_by INTEGER NOT NULL, digest TEXT NOT NULL, note TEXT NOT NULL, request TEXT NOT NULL,
    PRIMARY KEY (name, version));
INSERT INTO revisions VALUES ('1000/train',2,1700000000000,1000,'d1','rollback to 1','{"bucket_run":128,"dataset":"files-1","env":{"HOME":"/root"},"file":"/etc/spdld/train.yaml","from_loader":true,"reader":{"gid":1001,"groups":[27,100],"uid":1000},"vars":{"size":"224"},"yaml":"pipeline: train\n"}');
CREATE TABLE tuned (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO tuned VALUES ('executor.io_threads','512');
