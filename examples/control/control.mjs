// A client of a broker's control address, for tests in JavaScript: `ottla run -- node --test` sets the variables.

const url = process.env.OTTLA_CONTROL_URL;
const token = process.env.OTTLA_CONTROL_TOKEN;

export class Refused extends Error {
  constructor(problem) {
    super(problem.text ?? problem.detail);
    this.problem = problem;
  }
}

export async function ask(method, path, body) {
  const answer = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const document = await answer.json();
  if (!answer.ok) throw new Refused(document);
  return document;
}

export const addFault = async (rule) => (await ask("POST", "/v1/faults", rule)).faults[0];
export const waitFor = (condition, details) => ask("POST", "/v1/wait", { for: condition, ...details });
export const disk = (node, body) => ask("PUT", `/v1/disks/${node}`, body);
export const records = async (topic) => (await ask("GET", `/v1/topics/${encodeURIComponent(topic)}/records`)).records;
export const reset = () => ask("POST", "/v1/reset", {});
