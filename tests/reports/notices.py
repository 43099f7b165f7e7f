"""What mail servers write back, worded as each of them does. `{id}` is the mail that came back, `{who}` for whom."""

_REPORT = """\
Return-Path: <>
From: {daemon}
To: {to}
Subject: {subject}
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status;
\tboundary="8F2D.1764424000/mx.example.org"
Message-Id: <{number}@mx.example.org>
Date: Sun, 29 Nov 2026 14:00:00 +0000

This is a MIME-encapsulated message.

--8F2D.1764424000/mx.example.org
Content-Description: Notification
Content-Type: text/plain; charset=us-ascii

{words}

--8F2D.1764424000/mx.example.org
Content-Description: Delivery report
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.org
Arrival-Date: Sun, 29 Nov 2026 13:59:58 +0000

{status}

--8F2D.1764424000/mx.example.org
Content-Type: {kind}

From: Tidemark <tidemark@perf.example.org>
To: ada@example.org
Subject: Re: [PATCH 0/2] mm: Clear pages twice
Message-ID: <{id}>
Date: Sun, 29 Nov 2026 13:59:00 +0000

The report.

--8F2D.1764424000/mx.example.org--
"""


def report(
    status: str,
    *,
    daemon: str = "MAILER-DAEMON@mx.example.org (Mail Delivery System)",
    words: str = "This is the mail system at host mx.example.org.",
    kind: str = "message/rfc822",
) -> str:
    subject = "Undelivered Mail Returned to Sender"
    fields = {"daemon": daemon, "subject": subject, "words": words, "status": status, "kind": kind}
    return _REPORT.replace("{to}", "@TO@").replace("{id}", "@ID@").replace("{number}", "@NUMBER@").format(**fields)


POSTFIX = report(
    "Final-Recipient: rfc822; @WHO@\nOriginal-Recipient: rfc822;@WHO@\nAction: failed\nStatus: 5.1.1\n"
    "Remote-MTA: dns; mail.example.org\n"
    "Diagnostic-Code: smtp; 550 5.1.1 <@WHO@>: Recipient address rejected:\n    User unknown in local recipient table"
)
POSTFIX_HEADERS = report(
    "Final-Recipient: rfc822; @WHO@\nAction: failed\nStatus: 5.2.2\nDiagnostic-Code: smtp; 552 5.2.2 Mailbox full",
    kind="text/rfc822-headers",
)
POSTFIX_LATE = report("Final-Recipient: rfc822; @WHO@\nAction: delayed\nStatus: 4.4.1\nWill-Retry-Until: tomorrow")
FORWARDED = report(
    "Original-Recipient: rfc822;@WHO@\nFinal-Recipient: rfc822; ada@elsewhere.example.net\nAction: failed\n"
    "Status: 5.0.0\nDiagnostic-Code: smtp; 550 5.7.1 refused by policy"
)
EXCHANGE = report(
    "Final-Recipient: rfc822;@WHO@\nAction: failed\nStatus: 5.1.10\n"
    "Diagnostic-Code: smtp;550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
    daemon="<MicrosoftExchange329e71ec88ae4615bbc36ab6ce41109e@corp.example.org>",
)
DELIVERED = report("Final-Recipient: rfc822; @WHO@\nAction: delivered\nStatus: 2.0.0")

QMAIL = """\
Return-Path: <>
From: MAILER-DAEMON@mx.example.org
To: @TO@
Subject: failure notice
Message-ID: <@NUMBER@@mx.example.org>
Date: 29 Nov 2026 14:00:00 -0000

Hi. This is the qmail-send program at mx.example.org.
I'm afraid I wasn't able to deliver your message to the following addresses.
This is a permanent error; I've given up. Sorry it didn't work out.

<@WHO@>:
192.0.2.7 does not like recipient.
Remote host said: 550 5.1.1 sorry, no mailbox here by that name
Giving up on 192.0.2.7.

--- Below this line is a copy of the message.

Return-Path: <tidemark@perf.example.org>
From: Tidemark <tidemark@perf.example.org>
To: ada@example.org
Message-ID: <@ID@>
Subject: Re: [PATCH 0/2] mm: Clear pages twice

The report.
"""

EXIM = """\
Return-path: <>
From: Mail Delivery System <Mailer-Daemon@mx.example.org>
To: @TO@
Auto-Submitted: auto-replied
X-Failed-Recipients: @WHO@
Subject: Mail delivery failed: returning message to sender
Message-Id: <@NUMBER@@mx.example.org>
Date: Sun, 29 Nov 2026 14:00:00 +0000

This message was created automatically by mail delivery software.

A message that you sent could not be delivered to one or more of its
recipients. This is a permanent error. The following address(es) failed:

  @WHO@
    host mail.example.org [192.0.2.7]
    SMTP error from remote mail server after RCPT TO:<@WHO@>:
    550 5.7.1 posting from this address is not allowed

------ This is a copy of the message, including all the headers. ------

Message-ID: <@ID@>
From: Tidemark <tidemark@perf.example.org>
Subject: Re: [PATCH 0/2] mm: Clear pages twice

The report.
"""

EXIM_LATE = """\
Return-path: <>
From: Mail Delivery System <Mailer-Daemon@mx.example.org>
To: @TO@
Auto-Submitted: auto-replied
Subject: Warning: message 1tGabc-0001 delayed 24 hours
Message-Id: <@NUMBER@@mx.example.org>
Date: Sun, 29 Nov 2026 14:00:00 +0000

This message was created automatically by mail delivery software.
A message that you sent has not yet been delivered to one or more of its
recipients after more than 24 hours on the queue on mx.example.org.

The message identifier is:     1tGabc-0001
The subject of the message is: Re: [PATCH 0/2] mm: Clear pages twice

The address to which the message has not yet been delivered is:

  @WHO@
    host mail.example.org [192.0.2.7]: 451 4.7.1 greylisted

No action is required on your part. Delivery attempts will continue for
some time, and this warning may be repeated at intervals.

Message-ID: <@ID@>
"""

OLD_EXCHANGE = """\
From: System Administrator <postmaster@corp.example.org>
To: @TO@
Subject: Undeliverable: Re: [PATCH 0/2] mm: Clear pages twice
In-Reply-To: <@ID@>
Message-ID: <@NUMBER@@corp.example.org>
Date: Sun, 29 Nov 2026 14:00:00 +0000

Your message

  To:      ada@corp
  Subject: Re: [PATCH 0/2] mm: Clear pages twice
  Sent:    Sun, 29 Nov 2026 13:59:00 -0000

did not reach the following recipient(s):

@WHO@ on Sun, 29 Nov 2026 13:59:30 -0000
    The e-mail account does not exist at the organization this message
    was sent to.
    <mail.corp.example.org #5.1.1>
"""

VACATION = """\
From: Ada <ada@example.org>
To: @TO@
Subject: Out of office: Re: [PATCH 0/2] mm: Clear pages twice
Auto-Submitted: auto-replied (vacation)
In-Reply-To: <@ID@>
Message-ID: <@NUMBER@@example.org>
Date: Sun, 29 Nov 2026 14:00:00 +0000

@WHO@: I am away until Monday. Undeliverable until then.
"""

PERSON = """\
From: Ada <ada@example.org>
To: @TO@
Subject: Re: [PATCH 0/2] mm: Clear pages twice
In-Reply-To: <@ID@>
Message-ID: <@NUMBER@@example.org>
Date: Sun, 29 Nov 2026 14:00:00 +0000

> <@WHO@>: 550 5.1.1 could not be delivered

Thanks, I see it too.
"""


def filled(notice: str, *, message_id: str, who: str, to: str = "tidemark@perf.example.org", number: int = 1) -> bytes:
    fields = {"@ID@": message_id, "@WHO@": who, "@TO@": to, "@NUMBER@": f"notice.{number}"}
    for name, value in fields.items():
        notice = notice.replace(name, value)
    return notice.encode()
