// The tour of a TypeScript program through a graph, with the client that is generated from the OpenAPI document.
// Prints one JSON object, which tests/server/test_typescript.py checks.

import assert from "node:assert/strict";
import { client } from "./client/client.gen";
import * as graphs from "./client";
import type { Change, Error as Failure, FeedPage, Merge, Read } from "./client";

const [address, token, graphId] = process.argv.slice(2);
const path = { graph_id: graphId };

interface Answer<T> {
  data?: T;
  error?: unknown;
  response?: Response;
}

/** The data of an answer that has to succeed. */
function ok<T>(answer: Answer<unknown>): T {
  assert(answer.response?.ok, JSON.stringify(answer.error));
  return answer.data as T;
}

/** The error of an answer that has to fail with a status. */
function refused(answer: Answer<unknown>, status: number): Failure {
  assert.equal(answer.response?.status, status);
  return answer.error as Failure;
}

const ages = "query ages() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }";
const setAge = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }";

async function rows(branch?: string): Promise<Read> {
  return ok<Read>(await graphs.clusterQuery({ path, body: { query: ages, branch } }));
}

async function tour(): Promise<void> {
  client.setConfig({ baseUrl: address, auth: () => token });

  // Branch, and load rows into it
  ok(await graphs.clusterCreateBranch({ path, body: { name: "draft" } }));
  const lines = ["ann", "bob"].map((name, at) => JSON.stringify({ type: "Person", data: { name, age: 30 + at } }));
  // The generator takes NDJSON for JSON: without this option it would send the lines as one quoted text.
  const ndjson = { path, query: { branch: "draft", mode: "append" as const }, bodySerializer: null };
  const loaded = ok<{ total_entities: number }>(await graphs.clusterLoadNdjson({ ...ndjson, body: lines.join("\n") }));
  assert.equal(loaded.total_entities, 2);
  const again = await graphs.clusterLoadNdjson({ ...ndjson, body: lines[0] });
  assert.equal(refused(again, 409).key_conflict?.entity_id, "ann");

  // Query
  const read = await rows("draft");
  assert.deepEqual(read.rows, [{ name: "ann", age: 30 }, { name: "bob", age: 31 }]);
  assert.equal((await rows()).row_count, 0);
  const wrong = await graphs.clusterQuery({ path, body: { query: "query q() { match { $x: Nothing } return { $x } }" } });
  assert.equal(refused(wrong, 400).code, "bad_request");

  // Merge, and mutate with a condition
  const feedStart = ok<FeedPage>(await graphs.clusterPollChanges({ path, query: { kind: ["node"] } }));
  assert.equal(ok<Merge>(await graphs.clusterMergeBranches({ path, body: { source: "draft" } })).outcome, "fast_forward");
  const head = (await rows()).graph_commit_id as string;
  const body = { query: setAge, params: { n: "ann", a: 31 } };
  const headers = { "Omnigraph-If-Graph-Commit": head };
  assert.equal(ok<Change>(await graphs.clusterMutateIfGraphCommit({ path, headers, body })).affected_nodes, 1);
  const late = refused(await graphs.clusterMutateIfGraphCommit({ path, headers, body }), 412);
  assert.equal(late.precondition_failure?.expected, head);

  // Conflict: both sides set the same age
  ok(await graphs.clusterMutate({ path, body: { query: setAge, params: { n: "ann", a: 32 }, branch: "draft" } }));
  const conflict = refused(await graphs.clusterMergeBranches({ path, body: { source: "draft" } }), 409);
  assert.equal(conflict.total_conflicts, 1);
  const [{ entity_kind, type_name, entity_id, kind }] = conflict.merge_conflicts as Record<string, string>[];
  assert.equal(kind, "divergent_update");
  const resolutions = [{ entity_kind: entity_kind as "node", type_name, entity_id, side: "theirs" as const }];
  const merged = ok<Merge>(
    await graphs.clusterMergeBranches({ path, body: { source: "draft", resolutions, delete_branch: true } }),
  );
  assert.deepEqual([merged.outcome, merged.branch_deleted], ["merged", true]);
  assert.equal((await rows()).rows[0].age, 32);

  // Tag, diff and feed
  ok(await graphs.clusterCreateTag({ path, body: { name: "v1" } }));
  const diff = ok<graphs.Diff>(await graphs.clusterDiff({ path, query: { from: head, to: "v1" } }));
  assert.deepEqual(diff.changes.map((change) => [change.id, change.op, change.changed]), [["ann", "update", ["age"]]]);
  const page = ok<FeedPage>(
    await graphs.clusterPollChanges({ path, query: { cursor: feedStart.cursor as string, kind: ["node"] } }),
  );
  const fed = page.blocks.map((block) => block.changes.map((change) => `${change.op} ${change.id}`));
  assert.equal(page.caught_up, true);

  // Blobs by range
  const photo = Buffer.from("0123456789").toString("base64");
  const insert = "query add($f: Blob) { insert Person { name: \"cat\", photo: $f } }";
  ok(await graphs.clusterMutate({ path, body: { query: insert, params: { f: `base64:${photo}` } } }));
  const query = { entity: "node" as const, type: "Person", id: "cat", property: "photo" };
  const part = await graphs.clusterGetBlob({ path, query, headers: { Range: "bytes=2-4" } });
  assert.equal(part.response?.status, 206);
  assert.equal(part.response?.headers.get("content-range"), "bytes 2-4/10");
  const bytes = await (part.data as Blob).text();
  const etag = part.response?.headers.get("etag") as string;
  const same = await graphs.clusterGetBlob({ path, query, headers: { "If-None-Match": etag } });
  assert.equal(same.response?.status, 304);
  refused(await graphs.clusterGetBlob({ path, query, headers: { Range: "bytes=10-" } }), 416);
  const whole = await graphs.clusterStatBlob({ path, query });
  assert.equal(whole.response?.headers.get("content-length"), "10");

  // Pages, and a missing token
  const commits = ok<graphs.Commits>(await graphs.clusterListCommits({ path, query: { limit: 2 } }));
  const rest = ok<graphs.Commits>(await graphs.clusterListCommits({ path, query: { cursor: commits.cursor as string } }));
  client.setConfig({ baseUrl: address, auth: () => undefined });
  assert.equal(refused(await graphs.clusterListBranches({ path }), 401).code, "unauthorized");

  console.log(JSON.stringify({ fed, bytes, commits: commits.commits.length + rest.commits.length }));
}

tour().catch((error) => {
  console.error(error);
  process.exit(1);
});
