// A checkout on an origin of its own. docs/rest-api.md explains each step.
// The order's number is in the address: ?order=order-1001

import type { components } from "./payments";

type Payment = components["schemas"]["Payment"];
type Method = components["schemas"]["PaymentMethod"];
type Problem = components["schemas"]["ErrorBody"];

const site = document.querySelector<HTMLMetaElement>("meta[name=payments-site]")!.content;
const order = new URLSearchParams(location.search).get("order") ?? "";
const form = document.querySelector("form")!;
const box = document.querySelector<HTMLElement>("#status")!;
const pause = (ms: number) => new Promise((resume) => setTimeout(resume, ms));

class Refusal extends Error {
  readonly isFinal: boolean;

  constructor(problem: Problem, code: number, requestId: string | null) {
    const words = problem.errors?.map((each) => `${each.param}: ${each.message}`).join(" ") ?? problem.message;
    super(`${words} (${requestId})`);
    // After 409 the payment under the key is still open: with another key, the order could be paid twice.
    this.isFinal = code < 500 && ![401, 409, 429].includes(code);
  }
}

async function call<T>(path: string, options: RequestInit = {}): Promise<{ answer: T; isUnfinished: boolean }> {
  const response = await fetch(`${site}/payments/api/${path}`, { credentials: "include", ...options });
  const answer = await response.json();
  if (!response.ok) throw new Refusal(answer.error, response.status, response.headers.get("Request-Id"));
  return { answer, isUnfinished: response.status === 202 };
}

/** Ask for the payment. A reload or a second click sends the same key, and gets the same payment. */
async function create(method: string): Promise<Payment> {
  const key = sessionStorage.getItem(`key ${order}`) ?? crypto.randomUUID();
  sessionStorage.setItem(`key ${order}`, key);
  const { token } = await (await fetch(`${site}/csrf/`, { credentials: "include" })).json();
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key, "X-CSRFToken": token };
  const body = JSON.stringify({ order, method_code: method });
  for (let attempt = 0; attempt < 30; attempt++) {
    const { answer, isUnfinished } = await call<Payment>("payments/", { method: "POST", headers, body });
    if (!isUnfinished) return answer;
    await pause(2000); // 202: recorded, and not known yet; the same call shows the result later
  }
  throw new Error("This takes longer than usual. Reload this page to see how it went.");
}

/** Follow the payment until there is nothing to wait for, also if no webhook arrives. */
async function follow(id: string): Promise<void> {
  form.hidden = true;
  for (;;) {
    const payment = (await call<Payment>(`payments/${id}/?fresh=1`)).answer;
    box.textContent = `${payment.display.headline}. ${payment.display.message}`;
    box.dataset.tone = payment.display.tone;
    if (payment.is_final) {
      sessionStorage.removeItem(`key ${order}`); // paying again is another intent
      sessionStorage.removeItem(`payment ${order}`);
      return;
    }
    await pause(2000);
  }
}

async function choose(): Promise<void> {
  const { answer } = await call<{ data: Method[] }>("payment-methods/?country=CL&currency=CLP");
  for (const method of answer.data.filter((each) => each.uses?.includes("payment") ?? true)) {
    const choice = Object.assign(document.createElement("input"), { type: "radio", name: "method", required: true });
    choice.value = method.code;
    const label = document.createElement("label");
    label.append(choice, method.name ?? method.code);
    document.querySelector("#methods")!.append(label);
  }
  form.hidden = false;
}

function show(error: unknown): void {
  if (error instanceof Refusal && error.isFinal) sessionStorage.removeItem(`key ${order}`);
  box.textContent = error instanceof Error ? error.message : String(error);
  box.dataset.tone = "bad";
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const payment = await create(String(new FormData(form).get("method")));
    sessionStorage.setItem(`payment ${order}`, payment.id);
    if (payment.checkout_url) location.assign(payment.checkout_url);
    else await follow(payment.id);
  } catch (error) {
    show(error);
  }
});

const known = sessionStorage.getItem(`payment ${order}`);
(known ? follow(known) : choose()).catch(show);
