// A client of `agent acp` by the official TypeScript library. Its input is not used: the first argument is the agent's
// command as a JSON list, the second the folder, the third the option that answers questions. It prints one JSON object.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const [command, cwd, option] = [JSON.parse(process.argv[2]), process.argv[3], process.argv[4]];
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"], cwd });
const seen = { updates: [], asked: [], results: {}, others: [] };
const app = client({ name: "sdk" })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push(params);
    return { outcome: { outcome: "selected", optionId: option } };
  })
  .onNotification(methods.client.session.update, ({ params }) => {
    seen.updates.push(params.update);
  });
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
await app.connectWith(stream, async (peer) => {
  const ask = (method, params) => peer.request(method, params);
  const clientInfo = { name: "sdk", version: "2.4.0" };
  seen.results.initialize = await ask(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    clientInfo,
  });
  seen.results.made = await ask(methods.agent.session.new, { cwd, mcpServers: [] });
  const { sessionId } = seen.results.made;
  const say = (text) => ask(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  seen.results.first = await say("go");
  seen.results.command = await say("/cost");
  seen.results.mode = await ask(methods.agent.session.setMode, { sessionId, modeId: "trust-project" });
  const setting = { sessionId, configId: "thinking", value: "high" };
  seen.results.option = await ask(methods.agent.session.setConfigOption, setting);
  const running = say("and now something long");
  while (!JSON.stringify(seen.updates).includes("begun")) await new Promise((done) => setTimeout(done, 20));
  await peer.notify(methods.agent.session.cancel, { sessionId });
  seen.results.cancelled = await running;
  seen.results.list = await ask(methods.agent.session.list, { cwd });
  seen.results.closed = await ask(methods.agent.session.close, { sessionId });
  const before = seen.updates.length;
  seen.results.loaded = await ask(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  seen.replayed = seen.updates.slice(before);
  try {
    await ask(methods.agent.session.load, { sessionId: "0123456789abcdef", cwd, mcpServers: [] });
  } catch (error) {
    seen.error = { code: error.code, message: error.message, data: error.data };
  }
  seen.results.again = await ask(methods.agent.session.close, { sessionId });
  seen.results.resumed = await ask(methods.agent.session.resume, { sessionId, cwd });
});
agent.stdin.end();
seen.exit = await new Promise((done) => agent.on("exit", (code) => done(code)));
console.log(JSON.stringify(seen));
