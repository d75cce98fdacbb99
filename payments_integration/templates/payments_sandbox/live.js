// Shows the parts of the page that are marked data-live as they are now, every two seconds.
'use strict';
(() => {
  const WAIT = 2000; // milliseconds
  const isWanted = document.getElementById('refresh');
  const problem = document.getElementById('refresh-problem');

  const isLike = (old, fresh) => old && !old.id && old.nodeName === fresh.nodeName;

  // Makes one node like another, and keeps the nodes themselves: what is open, focused, selected or scrolled stays so.
  function update(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (name !== 'open' && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const kept = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    let place = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const same = child.id ? kept.get(child.id) : isLike(place, child) && place;
      if (!same) {
        old.insertBefore(document.importNode(child, true), place);
        continue;
      }
      if (same === place) place = place.nextSibling;
      else old.insertBefore(same, place);
      update(same, child);
    }
    while (place) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
  }

  function say(text) {
    if (problem.textContent !== text) problem.textContent = text; // a reader that speaks says it once
  }

  async function refresh() {
    if (!isWanted.checked || document.hidden) return;
    try {
      const answer = await fetch(location.pathname + location.search, { signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(`The answer is ${answer.status}.`);
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      if (!isWanted.checked) return; // not any more
      for (const part of document.querySelectorAll('[data-live]')) update(part, page.getElementById(part.id));
      say('');
    } catch {
      say('The sandbox does not answer. This page shows what it held before.');
    }
  }

  async function run() {
    await refresh();
    setTimeout(run, WAIT);
  }

  document.getElementById('refresh-choice').hidden = false;
  document.addEventListener('visibilitychange', refresh);
  setTimeout(run, WAIT);
})();
