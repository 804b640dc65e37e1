// The page: the form starts a run, the run feeds the views.

import { fetchModel, streamCompletion } from "./client.mjs";
import { TokenDetails } from "./details.mjs";
import { RequestForm } from "./form.mjs";
import { Run } from "./run.mjs";
import { TokenField } from "./token.mjs";
import { resultOf } from "./words.mjs";

const element = (id) => document.getElementById(id);
const form = new RequestForm(element("request"), { start, stop: () => controller?.abort() });
const details = new TokenDetails(element("details"));
const token = new TokenField(element("token-field"));
let controller = null;
let measuredPlainTime = null;

showModel();

async function start(body) {
  if (element("model").hidden) showModel(); // no answer when the page was opened
  controller = new AbortController();
  form.setRunning(true);
  element("failure").textContent = "";
  say(body.num_speculative_tokens === 0 ? "Generating without proposals …" : "Generating …");
  element("run").hidden = false;
  details.hide();
  const run = new Run(document, details, measuredPlainTime);
  const ending = await follow(run, body, controller.signal);
  run.finish();
  measuredPlainTime = run.tally.plainRoundTime ?? measuredPlainTime;
  say(run.tally.tokenCount || ending !== "Failed" ? resultOf(run.tally, ending, body.seed) : "");
  element("run").hidden = run.tally.tokenCount === 0;
  form.setRunning(false);
}

/** Feeds the run until the stream ends; returns how it ended. */
async function follow(run, body, signal) {
  try {
    for await (const chunk of streamCompletion(body, token.headers, signal)) run.add(chunk);
    return "Finished";
  } catch (error) {
    if (error.name === "AbortError") return "Stopped";
    if (error.wantsToken) token.show();
    element("failure").textContent = error.name === "Failure" ? error.message : "The page could not read the answer.";
    if (error.name !== "Failure") console.error(error);
    return "Failed";
  }
}

function say(text) {
  element("status").textContent = text;
}

async function showModel() {
  const model = await fetchModel(token.headers).catch(askForToken);
  if (model === null) return;
  element("model-name").textContent = model.id;
  element("model").hidden = false;
  form.setLimits(model);
}

/** Asks for a token if the failure is a missing one; throws any other failure. */
function askForToken(failure) {
  if (!failure.wantsToken) throw failure;
  token.show();
  return null;
}
