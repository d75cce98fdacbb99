// Swagger UI on the API's own description. Every POST is offered a key of its own, and sends Django's CSRF token.
"use strict";

(async () => {
  const place = document.querySelector("main");
  const { schema, csrfHeader, csrfToken } = place.dataset;
  const answer = await fetch(schema);
  if (!answer.ok) {
    place.textContent = `The description of the API could not be read (${answer.status}). Reload this page to try again.`;
    return;
  }
  const spec = await answer.json();
  for (const { post } of Object.values(spec.paths)) {
    const key = post?.parameters?.find((each) => each.name === "Idempotency-Key");
    if (key) key.example = crypto.randomUUID?.() ?? ""; // browsers have it with HTTPS and on localhost only
  }
  SwaggerUIBundle({
    spec,
    domNode: place,
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    deepLinking: true,
    validatorUrl: null, // it would send the description to another host
    requestInterceptor(request) {
      if (request.method === "POST") request.headers[csrfHeader] = csrfToken;
      return request;
    },
  });
})();
